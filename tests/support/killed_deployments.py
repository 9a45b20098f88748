"""Deployments that are killed at every change they make to the disk, one after the other.

    python -m tests.support.killed_deployments FOLDER pass|fail

Each is a process of its own. Another one goes on with one action, then deploys. Prints how many
were killed; ends with a status other than 0 where what is live is not what it has to be.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from effects.workers.action import ActionFailed
from effects.workers.deployment import Deployment, DeployWorker
from effects.workers.threads import WorkerThreads

CHANGES = {"os.rename", "os.symlink", "os.mkdir", "os.remove", "os.rmdir"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEXT = (("plan", ""), ("build", "c"), ("release", "c"), ("verify", "a"), ("rollback", "c"))

Work = Callable[[DeployWorker], Awaitable[None]]


async def deploy(worker: DeployWorker, name: str) -> bool:
    """Carry out the stages, and go back where the last one fails; returns whether all went well."""
    for stage in ("plan", "build", "release", "verify", "rollback"):
        if stage == "rollback":
            await worker.rollback({"release": name}, said)
            return False
        result = await getattr(worker, stage)({"release": name}, said)
        if stage == "verify" and result.ok:
            return True
        assert result.ok or stage == "verify", result
    raise AssertionError


def said(_line: str, _left_out: int = 0, /) -> None:
    """Take a line of progress."""


def kill_at(change: int) -> None:
    """Kill this process by SIGKILL before its n-th change of the disk."""
    changes = count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and int(str(arguments[2])) & WRITING
        if (writes or event in CHANGES) and next(changes) == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def forked(place: Path, work: Work, change: int = 0, check: tuple[str, ...] = ()) -> int:
    """Do work in a process of its own; returns its status, negative where it was killed."""
    sys.stdout.flush()
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        if change:
            kill_at(change)
        deployment = Deployment(place / "root", place / "source", check=check, keep=1)
        asyncio.run(bounded(work(DeployWorker(WorkerThreads(), deployment))))
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


async def bounded(work: Awaitable[None]) -> None:
    """Wait for work, but not for ever."""
    async with asyncio.timeout(60.0):
        await work


async def before(worker: DeployWorker) -> None:
    """Deploy twice."""
    assert await deploy(worker, "z")
    assert await deploy(worker, "a")


async def killed(worker: DeployWorker) -> None:
    """Deploy what is to be killed meanwhile."""
    await deploy(worker, "b")


def live(place: Path) -> str:
    """Return the release that is live; none is there by half."""
    for one in (place / "root" / "releases").iterdir():
        assert (one / "folder" / "page").read_text() == "page"
    return (place / "root" / "current").resolve(strict=True).name


def goes_on(place: Path, action: str, release: str) -> None:
    """Assert that after one action what has to be is live, and that one can deploy again."""
    state = json.loads((place / "root" / "deployment.json").read_text())
    expected = "a" if state["unverified"] or state["verified"][-1] == "a" else "b"
    assert live(place) in {"a", "b"}

    async def work(worker: DeployWorker) -> None:
        with suppress(ActionFailed):  # nothing to release, say
            await getattr(worker, action)({"release": release}, said)
        assert live(place) == expected, (action, live(place), state)
        assert await deploy(worker, "c")
        assert live(place) == "c"
        left = {one.name for one in (place / "root").iterdir()}
        assert left <= {
            *("current", ".current.back", ".current.next", "releases"),
            *("deployment.json", ".deployment.lock", ".building"),
        }
        assert not list((place / "root" / ".building").iterdir())

    assert forked(place, work) == 0


def main(folder: Path, outcome: str) -> int:
    """Kill at every change; returns how many there were."""
    model, place = folder / "model", folder / "place"
    (model / "source" / "folder").mkdir(parents=True)
    (model / "source" / "folder" / "page").write_text("page")
    assert forked(model, before) == 0
    for change in count(1):
        shutil.copytree(model, place, symlinks=True)
        status = forked(place, killed, change, () if outcome == "pass" else ("false",))
        if status == 0:
            return change - 1
        assert status == -signal.SIGKILL, status
        goes_on(place, *NEXT[change % len(NEXT)])
        shutil.rmtree(place)
    raise AssertionError


if __name__ == "__main__":
    sys.stdout.write(f"{main(Path(sys.argv[1]), sys.argv[2])}\n")
