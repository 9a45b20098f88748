"""The demonstration, act by act."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import msgspec

from compare.report import Report
from contract.errors import CutoverError
from cutover.demo.children import router
from cutover.demo.configuration import QA_KEY, WRITTEN, configuration, crashing_message
from cutover.demo.messages import Message
from cutover.demo.question import Asked, ask
from cutover.demo.sending import Answered, send, send_all
from cutover.reports import compare_and_write
from cutover.wiring.models import KEY
from loadtests.plan import LoadPlan, Target
from loadtests.runner import run_load
from loadtests.simulator import Profile, spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.report import LoadReport

CONFIG = "cutover.toml"
_PROFILE = Profile(ttft_ms=60, rate=400)
_SETTLED_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the demonstration was asked for."""

    folder: Path
    messages: list[Message]
    load_seconds: float
    users: int


@dataclass(slots=True)
class Outcome:
    """What the demonstration has to tell."""

    url: str = ""
    answers: list[Answered] = field(default_factory=list)
    crash: Answered | None = None
    asked: Asked | None = None
    simulated: bool = True
    load: LoadReport | None = None
    books: dict[str, Any] = field(default_factory=dict)
    report: Report | None = None


class NotOurs(CutoverError):
    """The folder holds something no demonstration has written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{str(folder)!r} holds what no demonstration wrote: name another --out")


class Demonstration:
    """Runs the acts one after the other; what it starts, it ends."""

    def __init__(self, wishes: Wishes, tell: Callable[[str, float], None]) -> None:
        self.wishes = wishes
        self.outcome = Outcome()
        self._tell = tell
        self._key = secrets.token_hex(16)
        self._processes = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start simulator and router on free ports."""
        _emptied(self.wishes.folder)
        try:
            self._start()
        except BaseException:
            await self._processes.aclose()
            raise
        return self

    def _start(self) -> None:
        simulator = None if os.environ.get(KEY) else self._processes.enter_context(spawn(_PROFILE))
        self.outcome.simulated = simulator is not None
        config = self.wishes.folder / CONFIG
        config.write_text(configuration(self.wishes.folder, simulator), "utf-8")
        log = self.wishes.folder / "router.log"
        self.outcome.url = self._processes.enter_context(router(config, log, {QA_KEY: self._key}))

    async def __aexit__(self, *_: object) -> None:
        """End what was started; captures are flushed on the way."""
        await self._processes.aclose()

    async def converse(self) -> None:
        """Send the messages, some on graph, everything shadowed."""
        messages = self.wishes.messages
        count = 0

        def done(_: Answered) -> None:
            nonlocal count
            count += 1
            self._tell("messages", count / len(messages))

        self.outcome.answers = await send_all(self.outcome.url, messages, done)

    async def crash(self) -> None:
        """Let the graph stack crash in the middle of an answer, once."""
        async with aiohttp.ClientSession() as session:
            self.outcome.crash = await send(session, self.outcome.url, crashing_message())
        self._tell("takeover", 1.0)

    async def ask(self) -> None:
        """Be asked something by graph, roll it back, and go on on legacy."""
        self.outcome.asked = await ask(self.outcome.url, self.wishes.folder / CONFIG)
        self._tell("question", 1.0)

    async def load(self) -> None:
        """Load both stacks in turn, for a short while."""
        wishes, url = self.wishes, self.outcome.url
        bodies = wishes.folder / "messages.jsonl"
        lines = [msgspec.json.encode(message.body) for message in wishes.messages]
        bodies.write_bytes(b"\n".join(lines))
        targets = tuple(
            Target(stack=stack, url=url, qa_key=self._key) for stack in ("legacy", "graph")
        )
        plan = LoadPlan(
            targets=targets,
            messages=bodies,
            users=wishes.users,
            seconds=wishes.load_seconds,
            think=0.2,
        )
        self.outcome.load = await run_load(
            plan, wishes.folder / "load", lambda progress: self._tell("load", progress.share)
        )

    async def settle(self) -> None:
        """Wait until every shadow has run and is written down, and read the router's books."""
        until = time.monotonic() + _SETTLED_WITHIN
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.outcome.url}/readyz") as response:
                    self.outcome.books = await response.json()
                captures = self.outcome.books["captures"]
                done = captures["written"] + sum(captures["dropped"].values())
                if done >= self._requests or time.monotonic() > until:
                    return
                self._tell("shadows", done / self._requests)
                await asyncio.sleep(0.2)

    @property
    def _requests(self) -> int:
        return int(self.outcome.books["counts"]["requests"])

    async def compare(self) -> None:
        """Compare what was captured and write the report."""
        self._tell("shadows", 1.0)
        self.outcome.report = await asyncio.to_thread(
            compare_and_write,
            str(self.wishes.folder / "captures"),
            self.wishes.folder / "report",
            lambda share: self._tell("report", share),
        )


def _emptied(folder: Path) -> None:
    """Make a folder, or empty it where an earlier demonstration wrote it; raises `NotOurs`."""
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not _ours(folder)):
            raise NotOurs(folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _ours(folder: Path) -> bool:
    config = folder / CONFIG
    return config.is_file() and config.read_text("utf-8", "replace").startswith(WRITTEN)
