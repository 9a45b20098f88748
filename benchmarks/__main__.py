"""`python -m benchmarks`: measure every layer, print a table, write `build/bench.json`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks import (
    capacity,
    first_frame,
    flow_costs,
    interruption,
    journal,
    load_generator,
    load_truth,
    soak,
    takeover,
)
from benchmarks.harness import FULL, QUICK, Effort
from benchmarks.remote import pass_through
from benchmarks.rows import BenchRow, table
from benchmarks.services import interrupted
from benchmarks.shadows import alongside, workers
from loadtests.processes import child_environment, module_command

OUT = Path("build") / "bench.json"
PAIRS_PER_REQUEST = 500
"""A full bench compares two hundred thousand pairs."""
PROMPTS = 1_000
DAY_EXCHANGES = 100_000_000
FUZZED = (20_000, 1_000_000)
"""Inputs a reader is given: quick, and in full."""
ROLLOUT_DAYS = (1, 10)
"""Simulated days with a fault, and without: quick, and in full."""
SIMULATIONS = (100, 1_000)
"""Simulations of each statistic: quick, and in full."""

Bench = Callable[[Effort], Awaitable[Sequence[BenchRow]]]


def in_process(module: str, numbers: Callable[[Effort], Sequence[int]]) -> Bench:
    """Return a bench that runs in its own process, whose processor time and memory it reads."""

    async def bench(effort: Effort) -> Sequence[BenchRow]:
        command = module_command(module, *map(str, numbers(effort)))
        done = await asyncio.to_thread(
            subprocess.run, command, stdout=subprocess.PIPE, check=True, env=child_environment()
        )
        return msgspec.json.decode(done.stdout, type=list[BenchRow])

    return bench


def _recalled(effort: Effort) -> Sequence[int]:
    sizes = (10_000, 100_000) if effort.rounds > QUICK.rounds else (10_000,)
    return (effort.requests, *sizes)


BENCHES: dict[str, Bench] = {
    "capacity": capacity.measure,
    "first_frame": first_frame.measure,
    "flow_costs": flow_costs.measure,
    "shadow": alongside.measure,
    "shadow_workers": workers.measure,
    "day": in_process("benchmarks.shadows.day", lambda _: (DAY_EXCHANGES,)),
    "disconnect": interruption.measure,
    "takeover": takeover.measure,
    "remote": pass_through.measure,
    "load_truth": load_truth.measure,
    "load_generator": load_generator.measure,
    "model_port": in_process("benchmarks.parts.model_port", lambda e: (e.requests, e.rounds // 3)),
    "compare": in_process(
        "benchmarks.parts.compare", lambda e: (e.rounds, e.requests * PAIRS_PER_REQUEST)
    ),
    "outcomes": in_process("benchmarks.parts.outcomes", lambda e: (e.rounds,)),
    "objects": in_process("benchmarks.parts.objects", lambda e: (e.rounds,)),
    "prompts": in_process("benchmarks.parts.prompts", lambda e: (PROMPTS, e.requests)),
    "recall": in_process("benchmarks.parts.recall", _recalled),
    "checkpoint": in_process("benchmarks.parts.checkpoint", lambda e: (1 + 2 * e.rounds,)),
    "graphs": in_process("benchmarks.parts.graphs", lambda e: (e.requests,)),
    "effects": in_process("benchmarks.parts.effects", lambda e: (e.requests,)),
    "tool_calls": in_process("benchmarks.parts.tool_calls", lambda e: (e.requests // 4,)),
    "transports": in_process("benchmarks.parts.transports", lambda e: (e.requests,)),
    "side_by_side": in_process("benchmarks.parts.side_by_side", lambda e: (e.rounds,)),
    "fuzz": in_process("benchmarks.parts.fuzz", lambda e: (FUZZED[e.rounds > QUICK.rounds],)),
    "calibration": in_process(
        "benchmarks.parts.calibration", lambda e: (SIMULATIONS[e.rounds > QUICK.rounds],)
    ),
    "rollout_days": in_process(
        "benchmarks.parts.rollout_days", lambda e: (ROLLOUT_DAYS[e.rounds > QUICK.rounds],)
    ),
    "journal": journal.measure,
    "services": interrupted.measure,
    "soak": soak.measure,
    "stopped": interruption.measure_stops,
}
LONG = ("fuzz", "calibration", "rollout_days", "journal", "services", "soak", "stopped")
"""Run only where they are named: several minutes each, the soak an hour."""


def main() -> None:
    """Run the named benches, by default all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(BENCHES)}; default all but {', '.join(LONG)}"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: for development")
    parser.add_argument("--out", type=Path, default=OUT, help="the file for the rows as JSON")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench {unknown[0]!r}; there are {', '.join(BENCHES)}")
    console = Console()
    effort = QUICK if given.quick else FULL
    benches = {
        name: BENCHES[name] for name in given.names or BENCHES if given.names or name not in LONG
    }
    try:
        rows = asyncio.run(run(benches, effort, console))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    console.print(table(rows))
    console.print(f"the rows, and how each was measured: {given.out}", soft_wrap=True)


async def run(benches: dict[str, Bench], effort: Effort, console: Console) -> list[BenchRow]:
    """Run benches one after the other, never side by side: they would measure each other."""
    rows: list[BenchRow] = []
    if (task := asyncio.current_task()) is not None:
        # Without this a SIGTERM would leave providers and routers behind.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    columns = (TextColumn("{task.description:12}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for name, bench in benches.items():
            shown = progress.add_task(name, total=1.0)
            advance = partial(_show, progress, shown)
            rows += await bench(replace(effort, advance=advance))
            advance(1.0)
    return rows


def _show(progress: Progress, shown: TaskID, share: float) -> None:
    progress.update(shown, completed=share)


if __name__ == "__main__":
    main()
