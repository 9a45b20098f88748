"""Running both stacks under load, turn by turn, and keeping everything that was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from loadtests.engines import load, warm_up
from loadtests.flows import flow_named
from loadtests.generator import read_loads
from loadtests.interleaving import PlannedRun, interleaved
from loadtests.machine import cpu_times
from loadtests.messages import read_messages
from loadtests.page import write_page
from loadtests.report import FinishedRun, LoadReport, load_report
from loadtests.rows import Row, RowWriter, read_rows

if TYPE_CHECKING:
    from loadtests.plan import LoadPlan

TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load run is: run `number` (from 1) of `runs`, `elapsed` of `seconds` of it."""

    number: int
    runs: int
    stack: str
    elapsed: float
    seconds: float

    @property
    def share(self) -> float:
        """Share of the whole that is done."""
        within = min(self.elapsed / self.seconds, 1.0)
        return (self.number - 1 + within) / self.runs


Watch = Callable[[Progress], None]


async def run_load(plan: LoadPlan, out: Path, watch: Watch = lambda _: None) -> LoadReport:
    """Load every stack of a plan in turn; writes `rows.jsonl`, `load.json` and `load.html`.

    Raises `MessagesRefused`, `FlowUnknown` and `GeneratorFailed`, and `OSError` before anything is
    sent where `out` cannot be written to. Cancelling it ends the generator.
    """
    read_messages(flow_named(plan.flow), plan.messages)
    runs = interleaved(plan.stacks, plan.pairs, plan.seed)
    finished: list[FinishedRun] = []
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".load-", dir=out) as folder:
        for target in plan.targets:
            first = next(run for run in runs if run.stack == target.stack)
            await warm_up(plan, first, Path(folder) / f"warm-{target.stack}")
        for run in runs:
            shown = Progress(run.run + 1, len(runs), run.stack, 0.0, plan.seconds)
            finished.append(await _one(plan, run, Path(folder) / str(run.run), shown, watch))
        report = load_report(plan, finished)
        rows = [row for run in finished for row in run.rows]
        await asyncio.to_thread(_keep, report, rows, Path(folder) / "kept", out)
    return report


async def _one(
    plan: LoadPlan, run: PlannedRun, folder: Path, shown: Progress, watch: Watch
) -> FinishedRun:
    before = cpu_times()
    await _watched(load(plan, run, folder), shown, watch)
    busy = cpu_times().share_since(before)
    # Not on the loop: in a demonstration it serves the stacks as well.
    rows = await asyncio.to_thread(_read, folder)
    return FinishedRun(run, rows, read_loads(folder), busy)


def _read(folder: Path) -> list[Row]:
    return [row for path in sorted(folder.glob("rows-*.jsonl")) for row in read_rows(path)]


async def _watched(work: Awaitable[None], shown: Progress, watch: Watch) -> None:
    """Wait for `work` and tell every now and then how long it has been going on."""
    task = asyncio.ensure_future(work)
    began = time.monotonic()
    try:
        while not task.done():
            watch(replace(shown, elapsed=time.monotonic() - began))
            await asyncio.wait({task}, timeout=TICK_SECONDS)
        task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
    watch(replace(shown, elapsed=shown.seconds))


def _keep(report: LoadReport, rows: list[Row], beside: Path, out: Path) -> None:
    """Write all files beside their place, then put them there: no reader meets half of one."""
    with RowWriter(beside / "rows.jsonl") as writer:
        for row in rows:
            writer.write(row)
    (beside / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    write_page(report, rows, beside / "load.html")
    for name in ("rows.jsonl", "load.json", "load.html"):
        (beside / name).replace(out / name)
