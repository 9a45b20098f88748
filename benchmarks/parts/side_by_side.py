"""Measures a step of several workers against its slowest one, for the bench; rows go to stdout.

    python -m benchmarks.parts.side_by_side ROUNDS

The workers run a command each, in the registry the router has, and are logged in SQLite. Each takes
another time, the slowest a second, in an order that is not that of the instructions.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from benchmarks.parts.turns import STACKS, TurnBroken, take
from benchmarks.rows import BenchRow, at_most
from contract.flow import Request
from contract.flows.ops import OPS, OpsOptions, OpsRequest
from contract.wire import WireReader
from contract.workers import WorkerResult
from effects.local import RandomIds
from effects.model import in_turn, says
from effects.stores import SqlAudit
from effects.testing import World
from effects.workers import WorkerRegistry
from effects.workers.action import Arguments, ReportLine
from effects.workers.command import run_command

COUNTS: Final = (2, 8)
SECONDS: Final = (0.4, 1.0, 0.7, 0.2, 0.9, 0.3, 0.8, 0.5)
MOST_OVER_SLOWEST: Final = 1.2
_STEP: Final = '{"worker":"container","action":"logs","args":{"name":"%s"}}'


class Sleepers:
    """Workers that run `sleep`, each as long as its container's name says; `took` in seconds."""

    def __init__(self, folder: Path) -> None:
        self.took: list[float] = []
        self.registry = WorkerRegistry({("container", "logs"): self._sleep})
        self._folder = folder

    async def _sleep(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        name, began = str(arguments["name"]), time.perf_counter()
        script = f"echo {name} begins; sleep {SECONDS[int(name[1:])]}; echo {name} ends"
        command, environ = ("/bin/sh", "-c", script), {"PATH": os.environ.get("PATH", os.defpath)}
        await run_command(command, folder=self._folder, environ=environ, most=999, report=report)
        self.took.append(time.perf_counter() - began)
        return WorkerResult(ok=True, message=name)


async def over_slowest(stack: str, count: int, folder: Path, audit: SqlAudit) -> float:
    """Take a turn of one step; returns its time over that of the slowest worker.

    Raises `TurnBroken` where the frames are not in the order of the instructions.
    """
    sleepers = Sleepers(folder)
    names = [f"c{number}" for number in range(count)]
    step = f"[{','.join(_STEP % name for name in names)}]"
    model = in_turn(says(step), says('{"final":"done"}'))
    ports: dict[str, Any] = {"workers": sleepers.registry, "audit": audit, "ids": RandomIds()}
    world = World(model, **ports)
    request = Request(OpsRequest(input="why?", session_id="s"), OpsOptions())
    turn = await take(STACKS[stack], world, OPS, request)
    shown = [
        msgspec.json.decode(event.data)["message"].split()[0]
        for event in WireReader(OPS.decoder).feed(turn.wire)
        if event.name in {"progress", "result"}
    ]
    if shown != [name for name in names for _ in ("begins", "ends", "result")]:
        raise TurnBroken(stack)
    return turn.ms / 1_000 / max(sleepers.took)


async def measure(rounds: int) -> list[BenchRow]:
    """Measure both stacks, with two and with eight workers."""
    rows: list[BenchRow] = []
    with TemporaryDirectory() as made:
        folder = Path(made)
        async with SqlAudit.open(folder / "audit.sqlite") as audit:
            for count in COUNTS:
                for stack in STACKS:
                    found = [await over_slowest(stack, count, folder, audit) for _ in range(rounds)]
                    rows.append(_row(stack, count, found))
    return rows


def _row(stack: str, count: int, found: Sequence[float]) -> BenchRow:
    how = (
        f"time of a turn with one step of {count} commands, in processes of their own and logged, "
        f"over the slowest command's; frames in the order of the instructions; median of "
        f"{len(found)}, the worst {max(found):.3f}"
    )
    name = f"ops.{stack}.{count}_workers_over_slowest"
    return at_most(name, median(found), "×", MOST_OVER_SLOWEST, how)


def main() -> None:
    """Measure and print."""
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(measure(int(sys.argv[1])))))


if __name__ == "__main__":
    main()
