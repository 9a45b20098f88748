"""Running a plan: generators in processes of their own, one run after the other, one report.

Locust patches its process, and an open loop must not share one with what it measures.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, assert_never

import msgspec

from contract.errors import CutoverError
from contract.flows.declared import DeclaredFlow
from loadtests.arrivals import Cancellations, Constant, Shape
from loadtests.open_loop import READY, OpenLoopPlan
from loadtests.page import page
from loadtests.parquet import parquet_library, write_parquet
from loadtests.plan import LoadPlan, PlannedRun, interleaved
from loadtests.processes import child_environment, module_command
from loadtests.report import FinishedRun, LoadReport, load_report
from loadtests.requests import (
    DECLARED_VARIABLE,
    HEADERS_VARIABLE,
    QA_KEY_VARIABLE,
    ConversationsUnnamed,
    Target,
    flow_named,
    read_messages,
)
from loadtests.rows import SECOND, LoadRow, RowWriter, cpu_times, read_busy, read_loads, read_rows

LOCUSTFILE = Path(__file__).with_name("users.py")
SHAPEFILE = Path(__file__).with_name("shapes.py")
UI_HOST = "127.0.0.1"
WARM_UP = Constant(4.0)
WARM_UP_SECONDS = 1.0
LAST_LINES = 5
ENDS_WITHIN = 5.0
"""Seconds a generator that is broken off has to write down what it has seen."""
TICK_SECONDS = 0.2
LEAD = SECOND // 10
"""Nanoseconds from the moment all workers are ready to the first request."""


class GeneratorFailed(CutoverError):
    """A load generator ended with an error."""

    def __init__(self, stack: str, status: int, output: str) -> None:
        self.status = status
        self.output = "\n".join(output.splitlines()[-LAST_LINES:])
        super().__init__(f"the generator for {stack!r} ended with {status}:\n{self.output}")


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run: its command, its environment and its first line of standard input.

    One that has a first line says when it is ready, and is told when to begin.
    """

    command: Sequence[str]
    environment: dict[str, str]
    plan: bytes = b""


class Generators(Protocol):
    """What sends the requests of runs: processes of this machine, or workers on several."""

    @property
    def gone(self) -> bool:
        """Whether none is left that could send anything."""
        ...

    @property
    def lost(self) -> Sequence[str]:
        """Workers that the last run has lost, and why."""
        ...

    async def gathered(self) -> None:
        """Wait until all are there."""

    async def load(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Do one run; its raw rows are in `folder` afterwards. Raises `GeneratorFailed`.

        Cancelled, it ends the generators; the rows they had seen are there all the same.
        """

    async def warm_up(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Send a few requests that are not counted: caches, templates, connections."""


class OwnProcesses:
    """Generators on this machine."""

    gone = False
    lost: Sequence[str] = ()

    async def gathered(self) -> None:
        """Wait for nothing."""

    async def load(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Do one run."""
        match plan.engine:
            case "locust":
                more = {"--processes": plan.workers} if plan.workers > 1 else {}
                children = [locust_child(plan, run, folder, more)]
            case "open":
                whole = open_loop_plan(plan, run, folder)
                parts = (split(whole, number, plan.workers) for number in range(plan.workers))
                children = [open_loop_child(part) for part in parts]
            case _:
                assert_never(plan.engine)
        await finish(children, run.stack)

    async def warm_up(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Send a few requests."""
        await finish([open_loop_child(warm_up_plan(plan, run, folder))], run.stack)


def warm_up_plan(plan: LoadPlan, run: PlannedRun, folder: Path) -> OpenLoopPlan:
    """Return a few requests to the stack of a run."""
    return msgspec.structs.replace(
        open_loop_plan(plan, run, folder),
        arrivals=WARM_UP,
        seconds=WARM_UP_SECONDS,
        cancellations=Cancellations(),
    )


def split(whole: OpenLoopPlan, worker: int, workers: int) -> OpenLoopPlan:
    """Return the part of a worker (from 0) of so many: together they send what one would."""
    return msgspec.structs.replace(whole, worker=worker, workers=workers)


def locust_child(
    plan: LoadPlan, run: PlannedRun, folder: Path, more: Mapping[str, object], *flags: str
) -> Child:
    """Return Locust, alone or as the master of workers; `more` and `flags` are options for that."""
    target = plan.target(run.stack)
    settings: dict[str, object] = {
        "--locustfile": locustfiles(plan.shape),
        "--users": plan.users,
        "--spawn-rate": plan.users,
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
        "--cancel": plan.cancellations.share,
        "--cancel-within": plan.cancellations.within,
    }
    if plan.shape != "flat":
        settings["--shape"] = plan.shape
    settings |= more
    if plan.ui:
        settings |= {"--web-host": UI_HOST, "--web-port": plan.ui}
    else:
        settings["--run-time"] = f"{ceil(plan.seconds)}s"
    silent = () if plan.ui else ("--headless", "--only-summary")
    options = [str(word) for setting in settings.items() for word in setting]
    command = module_command("locust", *silent, *flags, *options)
    return Child(command, locust_environment(target, plan.declared))


def locustfiles(shape: Shape) -> str:
    """Return what Locust runs: its users, and the shape of their number if it changes."""
    return str(LOCUSTFILE) if shape == "flat" else f"{LOCUSTFILE},{SHAPEFILE}"


def locust_environment(
    target: Target, declared: DeclaredFlow | None, **more: str
) -> dict[str, str]:
    """Return the environment of a Locust that asks a target, secrets included."""
    return child_environment(
        **{
            HEADERS_VARIABLE: "\n".join(f"{name}: {value}" for name, value in target.headers),
            QA_KEY_VARIABLE: target.qa_key,
            DECLARED_VARIABLE: msgspec.json.encode(declared).decode() if declared else "",
        },
        **more,
    )


def open_loop_plan(plan: LoadPlan, run: PlannedRun, folder: Path) -> OpenLoopPlan:
    """Return a run of the open loop, as one worker does it."""
    return OpenLoopPlan(
        flow=plan.flow,
        declared=plan.declared,
        route_key=plan.route_key,
        run=run.run,
        target=plan.target(run.stack),
        messages=str(plan.messages.resolve()),
        rows=str(folder),
        arrivals=plan.schedule(run.seed),
        seconds=plan.seconds,
        patience=plan.patience,
        stall=plan.stall,
        cancellations=plan.cancellations,
        seed=run.seed,
    )


def open_loop_child(part: OpenLoopPlan) -> Child:
    """Return a generator of the open loop."""
    plan = msgspec.json.encode(part) + b"\n"
    return Child(module_command("loadtests.open_loop"), child_environment(), plan)


async def _soon() -> int:
    return time.monotonic_ns() + LEAD


async def finish(
    children: Sequence[Child], stack: str, begin: Callable[[], Awaitable[int]] = _soon
) -> None:
    """Run generators that share a load to their end; raises `GeneratorFailed`.

    Once all are ready, `begin` says when their schedule does: `time.monotonic_ns()`.
    """
    processes: list[Process] = []
    try:
        for child in children:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                env=child.environment,
                # Ctrl-C on a terminal is for us: we end it, once what it has seen is written.
                process_group=0,
            )
            processes.append(process)
        first = await asyncio.gather(*map(_prepare, processes, children))
        # The clock is the machine's: one schedule for all workers. Without it they just end.
        ready = all(line == READY for line in first)
        began = b"%d\n" % await begin() if ready else b""
        ended = await asyncio.gather(*(process.communicate(began) for process in processes))
    finally:
        await asyncio.gather(*(_break_off(each) for each in processes if each.returncode is None))
    for process, line, (output, _) in zip(processes, first, ended, strict=True):
        if process.returncode:
            written = (line + output).decode("utf-8", "replace")
            raise GeneratorFailed(stack, process.returncode, written)


async def _prepare(process: Process, child: Child) -> bytes:
    """Hand a generator its plan, if it takes one; returns the first line it writes then."""
    if not child.plan or process.stdin is None or process.stdout is None:
        return READY
    with suppress(ConnectionError):  # it has ended, and says why
        process.stdin.write(child.plan)
        await process.stdin.drain()
    return await process.stdout.readline()


async def _break_off(process: Process) -> None:
    """End a generator: it may write its last rows down, within `ENDS_WITHIN`."""
    try:
        process.terminate()
        async with asyncio.timeout(ENDS_WITHIN):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            # Its workers, too: they are of its group.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
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
    generators: Generators | None = None,
) -> LoadReport:
    """Load every stack of a plan in turn; writes `rows.jsonl`, `load.json` and `load.html`.

    And `rows.parquet`, if that is in the plan.

    By default processes of this machine do. Once it is `broken_off` the generator is ended, and
    what has been measured is all there is.
    Raises `MissingExtra`, `MessageFileRefused`, `FlowUnknown`, `GeneratorFailed` and
    `NothingMeasured`; `OSError` before anything is sent where `out` cannot be written to.
    Cancelling it ends the generator.
    """
    _check_messages(plan)
    if plan.parquet:
        parquet_library()
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".load-", dir=out) as folder:
        generators = generators or OwnProcesses()
        runner = _PlanRunner(plan, Path(folder), watch, broken_off, generators)
        finished = await runner.runs()
        rows = [row for run in finished for row in run.rows]
        report = load_report(plan, finished, time.time())
        if (report.broken_off or plan.ui) and not rows:
            raise NothingMeasured
        files = Path(folder) / "files"
        await asyncio.to_thread(_write_files, report, rows, files, parquet=plan.parquet)
        for file in files.iterdir():
            file.replace(out / file.name)
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
    generators: Generators

    async def runs(self) -> list[FinishedRun]:
        plan = self.plan
        runs = interleaved(plan.stacks, plan.pairs, plan.seed)
        finished: list[FinishedRun] = []
        await self._whole(self.generators.gathered())
        for target in plan.targets:
            first = next(run for run in runs if run.stack == target.stack)
            folder = self.folder / f"warm-{target.stack}"
            await self._whole(self.generators.warm_up(plan, first, folder))
        for run in runs:
            if self.broken_off() or self.generators.gone:
                break
            shown = LoadProgress(run.run + 1, len(runs), run.stack, 0.0, plan.seconds)
            finished.append(await self._one(run, shown))
        return finished

    async def _one(self, run: PlannedRun, shown: LoadProgress) -> FinishedRun:
        folder = self.folder / str(run.run)
        before = cpu_times()
        whole = await self._whole(self.generators.load(self.plan, run, folder), shown)
        busy = max(read_busy(folder), default=cpu_times().share_since(before))
        whole = whole or bool(self.plan.ui)  # which has no other end
        # Not on the loop: in a demonstration it serves the stacks as well.
        rows = await asyncio.to_thread(_read, folder, torn=not whole)
        lost = self.generators.lost
        return FinishedRun(run, rows, read_loads(folder), busy, broken_off=not whole, lost=lost)

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


def _write_files(report: LoadReport, rows: list[LoadRow], beside: Path, *, parquet: bool) -> None:
    """Write all files beside their place, from where they are put there: none is seen half."""
    with RowWriter(beside / "rows.jsonl") as writer:
        for row in rows:
            writer.write(row)
    (beside / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (beside / "load.html").write_text(page(report, rows), "utf-8")
    if parquet:
        write_parquet(rows, beside / "rows.parquet")
