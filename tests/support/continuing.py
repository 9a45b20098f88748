"""A process that continues pauses, and kills itself at it: `python -m tests.support.continuing`.

It reads one order a line, forks a child that continues the pause, ends the child by SIGKILL, and
answers with a line. Forking saves each child the imports, which take longer than what is killed.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import harness.builtin  # noqa: F401 - imported once for all children, as the stacks in `main`
from effects.pauses import Pauses
from harness import root
from harness.config import Settings
from loadtests.simulator import Simulator
from router.pauses import PausedExchanges
from tests.support.stage import Stage, Told


class Order(msgspec.Struct, frozen=True):
    """What to continue: by which stack, and after how many seconds to kill; None: never.

    The worker appends a line to the file `log`.
    """

    database: str
    log: str
    question: str
    stack: str
    kill_after: float | None = None


class Ended(msgspec.Struct, frozen=True):
    """How long the child ran, and whether it was killed at it."""

    seconds: float
    killed: bool


@asynccontextmanager
async def opened(
    database: str, log: str, sim: Simulator | None = None, ahead: float = 0.0
) -> AsyncIterator[Stage]:
    """Open a stage whose deployment appends to `log`; its pauses' clock is `ahead` seconds."""
    command = ["sh", "-c", 'echo ran >> "$0"; sleep 0.1; echo done', log]
    settings = Settings.model_validate(
        {"stores": {"database": database}, "workers": {"deploy": command}}
    )
    async with root.opened(settings) as world:
        table = Pauses(world.database, lambda: world.clock() + ahead)
        yield Stage(sim or Simulator(), world, PausedExchanges(table))


async def decide(stage: Stage, question: str, stack: str) -> Told:
    """Approve an instruction and continue its exchange."""
    body: dict[str, Any] = {"approval_id": question, "approved": True, "by": "ann"}
    return await stage.resume("ops", body, [stack])


async def _continue(order: Order) -> None:
    async with opened(order.database, order.log) as stage:
        await decide(stage, order.question, order.stack)


def _carry_out(order: Order) -> Ended:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        asyncio.run(_continue(order))
        os._exit(0)
    if order.kill_after is not None:
        time.sleep(order.kill_after)
        os.kill(child, signal.SIGKILL)  # one that has ended is not reaped yet: its id is its own
    _, status = os.waitpid(child, 0)
    return Ended(time.monotonic() - began, os.WIFSIGNALED(status))


def main() -> None:
    """Carry out the orders that come in."""
    root.stacks("ops")
    for line in sys.stdin.buffer:
        ended = _carry_out(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(msgspec.json.encode(ended) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
