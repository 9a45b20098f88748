"""The worker `deploy`: plan, build, release, verify and roll back releases of a source folder.

Each action is whole by itself. Whichever is first after a process was killed between `release` and
`verify` goes back to the release before, and says so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from contract.workers import WorkerResult
from effects.loop_time import limit, loop_now
from effects.workers.action import Action, ActionFailed, Arguments, ReportLine
from effects.workers.command import GRACE_SECONDS, CommandEnd, run_command
from effects.workers.confinement import NoSuchFile
from effects.workers.deployment.releases import (
    DeploymentBusy,
    Releases,
    UnverifiedRelease,
    copy_source,
    read_source,
    release_name,
)
from effects.workers.system import size
from effects.workers.threads import WorkerThreads

BETWEEN_REQUESTS: Final = 0.5
"""Seconds from one request of the check to the next."""
BETWEEN_ATTEMPTS: Final = 0.05
"""Seconds from one attempt to take the lock to the next."""
_REDIRECTED: Final = 300
_MARGIN_SECONDS: Final = 60.0
"""What may pass between a release and its check, beside the check's own time."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is deployed: a `source` folder, built by a command, beneath `root`.

    `build` runs in the copy that becomes the release; without it the copy is the release. A release
    is verified by `check`, a command that runs in it, or by a GET of `check_url` that is answered
    with 2xx, within `check_seconds`. Commands are argument lists, their environment is `environ`.
    """

    root: Path
    source: Path
    build: Sequence[str] = ()
    check: Sequence[str] = ()
    check_url: str = ""
    check_seconds: float = 60.0
    environ: Mapping[str, str] = field(default_factory=dict)
    keep: int = 5
    most: int = 65_536
    """Bytes of a command's output that are shown."""
    grace: float = GRACE_SECONDS
    patience: float = 5.0
    """Seconds to wait for the lock of the root."""


class DeployWorker:
    """Deploys one source folder; what may block runs in `threads`.

    `wall` returns seconds since the Unix epoch, on the clock of all hosts that share the root.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        deployment: Deployment,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._threads = threads
        self._deployment = deployment
        self._releases = Releases(deployment.root)
        self._wall = wall

    def actions(self) -> Mapping[tuple[str, str], Action]:
        """Return the actions."""
        offered = {
            "plan": self.plan,
            "build": self.build,
            "release": self.release,
            "verify": self.verify,
            "rollback": self.rollback,
        }
        return {("deploy", name): action for name, action in offered.items()}

    async def plan(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Report what a release of the source would be; its name is the digest of the source."""
        name = str(arguments["release"])
        if name:
            release_name(name)
        async with self._exclusive(report):
            live = await self._threads.run(lambda: self._releases.live)
        source = await self._threads.stoppable(partial(read_source, self._deployment.source))
        name = name or source.digest
        built = await self._threads.run(self._releases.built, name)
        if name == live:
            message = f"nothing would change: {name!r} is live"
        else:
            message = f"{name!r} would have {source.files} files, {size(source.bytes)}"
            message += ", and is built already" if built else ""
            message += f"; {live!r} is live" if live else "; no release is live"
        return _done(
            message,
            release=name,
            files=source.files,
            bytes=source.bytes,
            built=built,
            live=live,
        )

    async def build(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Build a release from the source; one that is built is left as it is.

        Code `build_failed`.
        """
        name = release_name(str(arguments["release"]))
        async with self._exclusive(report):
            if await self._threads.run(self._releases.built, name):
                return _done(f"{name!r} is built already", release=name)
            folder = await self._threads.whole(self._releases.begin, name)
            try:
                copy = partial(copy_source, self._deployment.source, folder, report=report)
                await self._threads.stoppable(copy)
                end = await self._run(self._deployment.build, folder, name, report)
                if end.status:
                    return _command_failed("build_failed", f"the build of {name!r}", end)
                await self._threads.whole(self._releases.finish, folder, name)
            finally:
                await self._threads.whole(partial(shutil.rmtree, ignore_errors=True), folder)
        return _done(f"{name!r} is built", release=name, left_out=end.left_out)

    async def release(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Make a built release live; it is not verified yet."""
        name = release_name(str(arguments["release"]))
        async with self._exclusive(report):
            live, built = await self._threads.run(self._live_and_built, name)
            if name == live and built:
                return _done(f"{name!r} is live already", release=name, previous=name)
            seconds = self._deployment.check_seconds + _MARGIN_SECONDS
            release = partial(self._releases.release, name, self._wall(), seconds)
            previous = await self._threads.whole(release)
        message = f"{name!r} is live, and not verified yet"
        return _done(message, release=name, previous=previous)

    async def verify(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Check the release that was made live; where that fails, the one before is live again.

        Codes `verify_failed`, `worker_timeout`, `nothing_to_verify`.
        """
        name = release_name(str(arguments["release"]))
        async with self._exclusive(report, verified=name):
            live, note = await self._threads.run(self._live_and_note)
            if note is None:
                if name == live:
                    return _done(f"{name!r} is verified already", release=name, live=live)
                message = f"{name!r} is not live: there is nothing to verify"
                return _failed("nothing_to_verify", message, release=name, live=live)
            passed, back = False, ""
            try:
                failure = await self._check(name, report)
                passed = failure is None
            finally:
                if not passed and (left := await self._threads.whole(self._releases.roll_back)):
                    _, back = left
            if failure is not None:
                again = f"{back!r} is live again" if back else "no release is live, as before"
                facts = {**failure.data, "release": name, "live": back}
                return _failed(failure.code, f"{failure.message}; {again}", **facts)
            await self._threads.whole(self._releases.verified, name)
            old = await self._threads.whole(self._prune, report)
        removed = f"; removed {', '.join(old)}" if old else ""
        return _done(f"{name!r} is live and verified{removed}", release=name, live=name)

    async def rollback(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Go back to the release before, from the one that is named, if that is live.

        Code `nothing_to_roll_back`.
        """
        named = str(arguments["release"])
        if named:
            release_name(named)
        async with self._locked():
            live, note = await self._threads.run(self._live_and_note)
            abandoned = note is not None and note.abandoned(self._wall())
            left = {live, note.release if note is not None else live}
            if named and named not in left and not abandoned:
                return _done(f"{named!r} is not live: {live!r} is", live=live)
            back = await self._threads.whole(self._releases.roll_back)
        if back is None:
            message = f"no verified release came before {live!r}" if live else "no release is live"
            return _failed("nothing_to_roll_back", message, live=live)
        gone, target = back
        again = f"{target!r} is live again" if target else "no release is live"
        return _done(f"left {gone!r}: {again}", left=gone, live=target)

    @asynccontextmanager
    async def _exclusive(self, report: ReportLine, verified: str = "") -> AsyncIterator[None]:
        """Hold the lock of the root, after going back from a release that was abandoned.

        Raises `DeploymentBusy` where one waits for its check, unless that is to be `verified` now.
        """
        async with self._locked():
            back = await self._threads.whole(self._repair, verified)
            if back is not None:
                left, target = back
                report(f"{left!r} was released and never verified: {target!r} is live again")
            yield

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        locks: list[int] = []
        try:
            # Others hold it for a moment: a plan must not make a release fail.
            until = loop_now() + self._deployment.patience
            while not locks:
                try:
                    await self._threads.whole(lambda: locks.append(self._releases.lock()))
                except DeploymentBusy:
                    if loop_now() >= until:
                        raise
                    await asyncio.sleep(BETWEEN_ATTEMPTS)
            yield
        finally:
            for lock in locks:
                os.close(lock)

    def _repair(self, verified: str) -> tuple[str, str] | None:
        note = self._releases.state.unverified
        if note is None:
            return None
        live = self._releases.live
        if verified == note.release == live:
            return None
        if note.release == live and not note.abandoned(self._wall()):
            raise DeploymentBusy(what=f"{note.release!r} is not verified yet")
        return self._releases.roll_back()

    def _prune(self, report: ReportLine) -> tuple[str, ...]:
        try:
            return self._releases.prune(self._deployment.keep)
        except OSError as failure:  # what was verified stays so
            report(f"older releases stay: {failure.strerror}")
            return ()

    def _live_and_built(self, name: str) -> tuple[str, bool]:
        return self._releases.live, self._releases.built(name)

    def _live_and_note(self) -> tuple[str, UnverifiedRelease | None]:
        return self._releases.live, self._releases.state.unverified

    async def _check(self, name: str, report: ReportLine) -> WorkerResult | None:
        """Check a release; returns the failure, None where it passes."""
        deployment = self._deployment
        what = f"the check of {name!r}"
        try:
            async with limit(deployment.check_seconds):
                if deployment.check_url:
                    await _answers(deployment.check_url, report)
                    return None
                folder = self._releases.path(name)
                end = await self._run(deployment.check, folder, name, report)
        except TimeoutError:
            message = f"{what} was ended after {deployment.check_seconds:g} s"
            return _failed("worker_timeout", message)
        except ActionFailed as failure:
            return _failed("verify_failed", f"{what}: {failure.message}")
        return _command_failed("verify_failed", what, end) if end.status else None

    async def _run(
        self, command: Sequence[str], folder: Path, name: str, report: ReportLine
    ) -> CommandEnd:
        if not command:
            return CommandEnd(0, "", 0)
        environ = {**self._deployment.environ, "RELEASE": name}
        try:
            return await run_command(
                command,
                folder=folder,
                environ=environ,
                most=self._deployment.most,
                report=report,
                grace=self._deployment.grace,
            )
        except FileNotFoundError as failure:
            raise NoSuchFile(command[0], "program") from failure


async def _answers(url: str, report: ReportLine) -> None:
    """Request a URL until it is answered with 2xx."""
    timeout = aiohttp.ClientTimeout(total=BETWEEN_REQUESTS * 10)
    answer = ""
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            try:
                async with session.get(url, allow_redirects=False) as response:
                    if response.ok and response.status < _REDIRECTED:
                        return
                    told = f"{url} answers {response.status}"
            except (aiohttp.ClientError, OSError):
                told = f"{url} does not answer"
            if told != answer:
                report(told)
            answer = told
            await asyncio.sleep(BETWEEN_REQUESTS)


def _done(message: str, **data: Any) -> WorkerResult:
    return WorkerResult(ok=True, message=message, data=data)


def _failed(code: str, message: str, **data: Any) -> WorkerResult:
    return WorkerResult(ok=False, message=message, code=code, data=data)


def _command_failed(code: str, what: str, end: CommandEnd) -> WorkerResult:
    how = f"with status {end.status}" if end.status > 0 else f"by signal {-end.status}"
    return _failed(
        code,
        f"{what} ended {how}",
        status=end.status,
        output=end.output,
        left_out=end.left_out,
    )
