"""Running a plan: generators in processes of their own, one run after the other, one report.

Locust patches its process, and an open loop must not share one with what it measures.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_never

import msgspec

from contract.errors import CutoverError
from loadtests.open_loop import Arrivals, Constant, OpenLoopPlan, Poisson
from loadtests.page import page
from loadtests.plan import LoadPlan, PlannedRun, interleaved
from loadtests.processes import child_environment, module_command
from loadtests.report import FinishedRun, LoadReport, load_report
from loadtests.requests import (
    DECLARED_VARIABLE,
    HEADERS_VARIABLE,
    QA_KEY_VARIABLE,
    ConversationsUnnamed,
    flow_named,
    read_messages,
)
from loadtests.rows import LoadRow, RowWriter, cpu_times, read_loads, read_rows

LOCUSTFILE = Path(__file__).with_name("users.py")
WARM_UP = Constant(4.0)
WARM_UP_SECONDS = 1.0
LAST_LINES = 5
ENDS_WITHIN = 5.0
"""Seconds a generator that is broken off has to write down what it has seen."""
TICK_SECONDS = 0.2


class GeneratorFailed(CutoverError):
    """A load generator ended with an error."""

    def __init__(self, stack: str, status: int, output: str) -> None:
        last = "\n".join(output.splitlines()[-LAST_LINES:])
        super().__init__(f"the generator for {stack!r} ended with {status}:\n{last}")


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run: its command, its standard input and its environment."""

    command: Sequence[str]
    stdin: bytes
    environment: dict[str, str]


async def load(plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
    """Do one run; its raw rows are in `folder` afterwards. Raises `GeneratorFailed`.

    Cancelled, it ends the generator; the rows it had seen are there all the same.
    """
    match plan.engine:
        case "locust":
            child = _locust(plan, run, folder)
        case "open":
            arrivals = Poisson(plan.requests_per_second, run.seed)
            child = _open(plan, run, folder, arrivals, plan.seconds)
        case _:
            assert_never(plan.engine)
    await _finish(child, run.stack)


async def warm_up(plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
    """Send a few requests that are not counted: caches, templates, connections."""
    await _finish(_open(plan, run, folder, WARM_UP, WARM_UP_SECONDS), run.stack)


def _locust(plan: LoadPlan, run: PlannedRun, folder: Path) -> Child:
    target = plan.target(run.stack)
    settings = {
        "--locustfile": LOCUSTFILE,
        "--users": plan.users,
        "--spawn-rate": plan.users,
        "--run-time": f"{ceil(plan.seconds)}s",
        # Streams that are under way when the time is over are read to their end: to cut them off
        # would leave out the slow ones.
        "--stop-timeout": ceil(plan.patience),
        "--exit-code-on-error": 0,
        "--host": target.url,
        "--flow": plan.flow,
        "--route-key": plan.route_key,
        "--stack": run.stack,
        "--messages": plan.messages.resolve(),
        "--rows": folder,
        "--think": plan.think,
        "--patience": plan.patience,
        "--stall": plan.stall,
        "--run-number": run.run,
        "--think-seed": run.seed,
    }
    words = [str(word) for setting in settings.items() for word in setting]
    headers = "\n".join(f"{name}: {value}" for name, value in target.headers)
    return Child(
        module_command("locust", "--headless", "--only-summary", *words),
        b"",
        child_environment(
            **{
                HEADERS_VARIABLE: headers,
                QA_KEY_VARIABLE: target.qa_key,
                DECLARED_VARIABLE: _declared(plan),
            }
        ),
    )


def _declared(plan: LoadPlan) -> str:
    return "" if plan.declared is None else msgspec.json.encode(plan.declared).decode()


def _open(
    plan: LoadPlan, run: PlannedRun, folder: Path, arrivals: Arrivals, seconds: float
) -> Child:
    loop = OpenLoopPlan(
        flow=plan.flow,
        declared=plan.declared,
        route_key=plan.route_key,
        run=run.run,
        target=plan.target(run.stack),
        messages=str(plan.messages.resolve()),
        rows=str(folder),
        arrivals=arrivals,
        seconds=seconds,
        patience=plan.patience,
        stall=plan.stall,
    )
    command = module_command("loadtests.open_loop")
    return Child(command, msgspec.json.encode(loop), child_environment())


async def _finish(child: Child, stack: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *child.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env=child.environment,
        # Ctrl-C on a terminal is for us: we end it, once what it has seen is written.
        process_group=0,
    )
    try:
        output, _ = await process.communicate(child.stdin)
    finally:
        if process.returncode is None:
            await _break_off(process)
    if process.returncode:
        raise GeneratorFailed(stack, process.returncode, output.decode("utf-8", "replace"))


async def _break_off(process: asyncio.subprocess.Process) -> None:
    """End a generator: it may write its last rows down, within `ENDS_WITHIN`."""
    try:
        process.terminate()
        async with asyncio.timeout(ENDS_WITHIN):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@dataclass(frozen=True, slots=True)
class LoadProgress:
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


Watch = Callable[[LoadProgress], None]


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
    Raises `MessageFileRefused`, `FlowUnknown`, `GeneratorFailed` and `NothingMeasured`; `OSError`
    before anything is sent where `out` cannot be written to. Cancelling it ends the generator.
    """
    _check_messages(plan)
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".load-", dir=out) as folder:
        finished = await _PlanRunner(plan, Path(folder), watch, broken_off).runs()
        rows = [row for run in finished for row in run.rows]
        report = load_report(plan, finished)
        if report.broken_off and not rows:
            raise NothingMeasured
        await asyncio.to_thread(_write_files, report, rows, Path(folder) / "files", out)
    return report


def _check_messages(plan: LoadPlan) -> None:
    """Raise before anything is sent: what `read_messages` raises, or `ConversationsUnnamed`."""
    messages = read_messages(flow_named(plan.flow, plan.declared), plan.messages, plan.route_key)
    if any(target.qa_key for target in plan.targets) and not messages.routable:
        raise ConversationsUnnamed(plan.flow)


@dataclass(frozen=True, slots=True)
class _PlanRunner:
    """The runs of a plan, one after the other, until the last or until it is broken off."""

    plan: LoadPlan
    folder: Path
    watch: Watch
    broken_off: Callable[[], bool]

    async def runs(self) -> list[FinishedRun]:
        plan = self.plan
        runs = interleaved(plan.stacks, plan.pairs, plan.seed)
        finished: list[FinishedRun] = []
        for target in plan.targets:
            first = next(run for run in runs if run.stack == target.stack)
            await self._whole(warm_up(plan, first, self.folder / f"warm-{target.stack}"))
        for run in runs:
            if self.broken_off():
                break
            shown = LoadProgress(run.run + 1, len(runs), run.stack, 0.0, plan.seconds)
            finished.append(await self._one(run, shown))
        return finished

    async def _one(self, run: PlannedRun, shown: LoadProgress) -> FinishedRun:
        folder = self.folder / str(run.run)
        before = cpu_times()
        whole = await self._whole(load(self.plan, run, folder), shown)
        busy = cpu_times().share_since(before)
        # Not on the loop: in a demonstration it serves the stacks as well.
        rows = await asyncio.to_thread(_read, folder, torn=not whole)
        return FinishedRun(run, rows, read_loads(folder), busy, broken_off=not whole)

    async def _whole(self, work: Awaitable[None], shown: LoadProgress | None = None) -> bool:
        """Wait for `work` and show its progress; False where it was broken off."""
        task = asyncio.ensure_future(work)
        began = time.monotonic()
        try:
            while not task.done() and not self.broken_off():
                if shown is not None:
                    self.watch(replace(shown, elapsed=time.monotonic() - began))
                await asyncio.wait({task}, timeout=TICK_SECONDS)
            if not task.done():
                return False
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
        if shown is not None:
            self.watch(replace(shown, elapsed=shown.seconds))
        return True


def _read(folder: Path, *, torn: bool) -> list[LoadRow]:
    paths = sorted(folder.glob("rows-*.jsonl"))
    return [row for path in paths for row in read_rows(path, torn=torn)]


def _write_files(report: LoadReport, rows: list[LoadRow], beside: Path, out: Path) -> None:
    """Write all files beside their place, then put them there: no reader meets half of one."""
    with RowWriter(beside / "rows.jsonl") as writer:
        for row in rows:
            writer.write(row)
    (beside / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (beside / "load.html").write_text(page(report, rows), "utf-8")
    for name in ("rows.jsonl", "load.json", "load.html"):
        (beside / name).replace(out / name)
