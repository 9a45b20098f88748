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

from contract.errors import CutoverError
from loadtests.engines import load, warm_up
from loadtests.flows import flow_named
from loadtests.generator import read_loads
from loadtests.interleaving import PlannedRun, interleaved
from loadtests.machine import cpu_times
from loadtests.messages import ConversationsUnnamed, read_messages
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


class NothingMeasured(CutoverError):
    """A load was broken off before it had a single row."""

    def __init__(self) -> None:
        super().__init__("broken off before anything was measured: nothing is written")


async def run_load(
    plan: LoadPlan,
    out: Path,
    watch: Watch = lambda _: None,
    broken_off: Callable[[], bool] = lambda: False,
) -> LoadReport:
    """Load every stack of a plan in turn; writes `rows.jsonl`, `load.json` and `load.html`.

    Once it is `broken_off` the generator is ended, and what has been measured is all there is.
    Raises `MessagesRefused`, `FlowUnknown`, `GeneratorFailed` and `NothingMeasured`, and `OSError`
    before anything is sent where `out` cannot be written to. Cancelling it ends the generator.
    """
    _check_messages(plan)
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".load-", dir=out) as folder:
        finished = await _Loading(plan, Path(folder), watch, broken_off).runs()
        rows = [row for run in finished for row in run.rows]
        report = load_report(plan, finished)
        if report.broken_off and not rows:
            raise NothingMeasured
        await asyncio.to_thread(_keep, report, rows, Path(folder) / "kept", out)
    return report


def _check_messages(plan: LoadPlan) -> None:
    """Raise `MessagesRefused`, `ConversationsUnnamed` or `FlowUnknown` before anything is sent."""
    messages = read_messages(flow_named(plan.flow, plan.declared), plan.messages, plan.route_key)
    if any(target.qa_key for target in plan.targets) and not messages.routable:
        raise ConversationsUnnamed(plan.flow)


class _Loading:
    """The runs of a plan, one after the other, until the last or until it is broken off."""

    def __init__(
        self, plan: LoadPlan, folder: Path, watch: Watch, broken_off: Callable[[], bool]
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._watch = watch
        self._broken_off = broken_off

    async def runs(self) -> list[FinishedRun]:
        plan = self._plan
        runs = interleaved(plan.stacks, plan.pairs, plan.seed)
        finished: list[FinishedRun] = []
        for target in plan.targets:
            first = next(run for run in runs if run.stack == target.stack)
            await self._whole(warm_up(plan, first, self._folder / f"warm-{target.stack}"))
        for run in runs:
            if self._broken_off():
                break
            shown = Progress(run.run + 1, len(runs), run.stack, 0.0, plan.seconds)
            finished.append(await self._one(run, shown))
        return finished

    async def _one(self, run: PlannedRun, shown: Progress) -> FinishedRun:
        folder = self._folder / str(run.run)
        before = cpu_times()
        whole = await self._whole(load(self._plan, run, folder), shown)
        busy = cpu_times().share_since(before)
        # Not on the loop: in a demonstration it serves the stacks as well.
        rows = await asyncio.to_thread(_read, folder, torn=not whole)
        return FinishedRun(run, rows, read_loads(folder), busy, broken_off=not whole)

    async def _whole(self, work: Awaitable[None], shown: Progress | None = None) -> bool:
        """Wait for `work`, tell how far it is, and break it off when asked; gives if it ended."""
        task = asyncio.ensure_future(work)
        began = time.monotonic()
        try:
            while not task.done() and not self._broken_off():
                if shown is not None:
                    self._watch(replace(shown, elapsed=time.monotonic() - began))
                await asyncio.wait({task}, timeout=TICK_SECONDS)
            if not task.done():
                return False
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
        if shown is not None:
            self._watch(replace(shown, elapsed=shown.seconds))
        return True


def _read(folder: Path, *, torn: bool) -> list[Row]:
    paths = sorted(folder.glob("rows-*.jsonl"))
    return [row for path in paths for row in read_rows(path, torn=torn)]


def _keep(report: LoadReport, rows: list[Row], beside: Path, out: Path) -> None:
    """Write all files beside their place, then put them there: no reader meets half of one."""
    with RowWriter(beside / "rows.jsonl") as writer:
        for row in rows:
            writer.write(row)
    (beside / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    write_page(report, rows, beside / "load.html")
    for name in ("rows.jsonl", "load.json", "load.html"):
        (beside / name).replace(out / name)
