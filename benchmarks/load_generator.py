"""Load on servers that know what they did: truth, overload, many streams, workers, machines."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.harness import Effort
from benchmarks.load_truth import Stamps, fetch_stamps, write_scripts
from benchmarks.rows import BenchRow, at_least, at_most, reported
from cutover.cluster import LOADING, differing, versions
from evidence.intervals import percentile
from evidence.tests import holm, paired_mean
from loadtests.machines import Address, Machines
from loadtests.metrics import METRICS
from loadtests.plan import Engine, LoadPlan, PlannedRun, Spacing
from loadtests.processes import (
    ServerProcess,
    child_environment,
    module_command,
    own_port,
    server_process,
)
from loadtests.report import FinishedRun, RunSummary, summarise_run
from loadtests.requests import Target
from loadtests.rows import SECOND, GeneratorLoad, LoadRow, read_loads, read_rows
from loadtests.runner import Generators, OwnProcesses

SERVERS = {
    "fixed": "first=0.05 gap=0.02 sends=20",
    "jitter": "first=0.05 gap=0.02 sends=20 jitter=0.03",
    "stalls": "first=0.05 gap=0.02 sends=20 silence=0.6",
    "cuts": "first=0.05 gap=0.02 sends=20 end=cut",
    "errors": "first=0.05 gap=0.02 sends=20 end=failed",
}
ENDINGS = {"cuts": "truncated", "errors": "error"}
TOLERANCE = 0.002
"""Seconds; or a hundredth of the true value, if that is more."""
SHARES = (0.5, 0.95, 0.99)
STOPPED_SECONDS = 1.0
WAITED_SECONDS = 0.1
STREAMS, PER_SECOND = 300, 20
MANY = f"first=0.05 gap={1 / PER_SECOND} sends=100"
MANY_SECONDS = 5.0
USERS, THINK = 8, 0.1
LAG_TARGET_MS = 5.0
CPU_WITHIN = 0.10


@dataclass(frozen=True, slots=True)
class Observed:
    """One run: its rows, the server's stamps by message, its generators, its summary."""

    rows: Sequence[LoadRow]
    stamps: Mapping[str, Stamps]
    generators: Sequence[GeneratorLoad]
    summary: RunSummary

    def off(self, name: str) -> float:
        """Return the worst error of a metric's percentiles, in tolerances."""
        found = sorted(METRICS[name].sample(self.rows))
        own = (row for row in self.rows if METRICS[name].of(row) is not None)
        counted = [row for row in own if METRICS[name].counts(row)]
        true = sorted(TRUTHS[name](self.stamps[row.message_id], row) for row in counted)
        errors = [0.0]
        for share in SHARES if found else ():
            wanted = percentile(true, share)
            allowed = max(TOLERANCE, wanted / 100)
            errors.append(abs(percentile(found, share) - wanted) / allowed)
        return max(errors)

    @property
    def cpu_per_stream(self) -> float:
        """Milliseconds of all generators' processor time for each stream."""
        return 1_000 * sum(each.cpu for each in self.generators) / max(len(self.rows), 1)


def _since(moment: Callable[[Stamps], int]) -> Callable[[Stamps, LoadRow], float]:
    return lambda stamps, row: (moment(stamps) - row.scheduled) / SECOND


def _gaps(stamps: Stamps) -> list[float]:
    return sorted((later - earlier) / SECOND for earlier, later in pairwise(stamps.texts))


TRUTHS: Mapping[str, Callable[[Stamps, LoadRow], float]] = {
    "ttfb": _since(lambda stamps: stamps.sent[0][1]),
    "ttfe": _since(lambda stamps: stamps.sent[0][1]),
    "ttft": _since(lambda stamps: stamps.texts[0]),
    "ttfo": _since(lambda stamps: stamps.texts[0]),
    "icl_max": lambda stamps, _: _gaps(stamps)[-1],
    "icl_p95": lambda stamps, _: percentile(_gaps(stamps), 0.95),
    "itl": lambda stamps, _: sum(_gaps(stamps)) / len(_gaps(stamps)),
    "e2el": _since(lambda stamps: stamps.texts[-1]),
    "ttle": _since(lambda stamps: stamps.sent[-1][1]),
}
"""What the server's stamps say each metric is, seconds."""


async def _nothing(_: ServerProcess) -> None:
    return


async def observe(
    script: str,
    rate: float,
    seconds: float,
    *,
    arrivals: Spacing = "constant",
    workers: int = 1,
    engine: Engine = "open",
    generators: Generators | None = None,
    meanwhile: Callable[[ServerProcess], Awaitable[None]] = _nothing,
) -> Observed:
    """Load a stamped target on one schedule; something may be done to the target meanwhile."""
    with TemporaryDirectory() as name, server_process("benchmarks.load_truth") as server:
        folder = Path(name)
        plan = LoadPlan(
            targets=(Target(stack="stamped", url=server.url),),
            messages=write_scripts(folder / "messages.jsonl", [script]),
            engine=engine,
            arrivals=arrivals,
            rate=rate if engine == "open" else None,
            users=USERS,
            think=THINK,
            seconds=seconds,
            workers=workers,
            pairs=1,
        )
        run = PlannedRun(0, 0, "stamped", 1)
        loading = (generators or OwnProcesses()).load(plan, run, folder / "rows")
        await asyncio.gather(loading, meanwhile(server))
        stamps = await fetch_stamps(server.url)
        rows = [row for path in (folder / "rows").glob("rows-*") for row in read_rows(path)]
        used = read_loads(folder / "rows")
        summary = summarise_run(FinishedRun(run, rows, used, None), plan)
        return Observed(rows, stamps, used, summary)


async def truth(seconds: float) -> list[BenchRow]:
    """Compare every metric with the server's own stamps."""
    rows = []
    for name, script in SERVERS.items():
        seen = await observe(script, 40.0, seconds)
        worst, metric = max((seen.off(metric), metric) for metric in TRUTHS)
        how = f"{len(seen.rows)} streams, {script!r}; worst of P50, P95, P99: {metric}"
        limit = "of 2 ms or 1 %"
        rows.append(at_most(f"load.truth.{name}", worst, limit, 1.0, how))
        wanted = ENDINGS.get(name, "complete")
        wrong = sum(row.ending != wanted for row in seen.rows)
        rows.append(at_most(f"load.truth.{name}_endings_wrong", wrong, "streams", 0, how))
    return rows


async def stopped(seconds: float) -> list[BenchRow]:
    """Stop a server for a second: what was due meanwhile waited, and its percentiles say so."""

    async def stop(server: ServerProcess) -> None:
        await asyncio.sleep(seconds / 2)
        os.kill(server.pid, signal.SIGSTOP)
        await asyncio.sleep(STOPPED_SECONDS)
        os.kill(server.pid, signal.SIGCONT)

    seen = await observe("first=0.02 gap=0.01 sends=4", 50.0, seconds, meanwhile=stop)
    how = f"{len(seen.rows)} streams, server stopped for {STOPPED_SECONDS:g} s of {seconds:g} s"
    values = sorted(METRICS["ttft"].sample(seen.rows))
    waited = sum(value > WAITED_SECONDS for value in values)
    p95 = percentile(values, 0.95)
    return [
        at_most("load.stopped.ttft_off", seen.off("ttft"), "of 2 ms or 1 %", 1.0, how),
        at_least("load.stopped.waited", waited, "streams", 40.0, how + ", of 50 due meanwhile"),
        reported("load.stopped.ttft_p95", 1_000 * p95, "ms", how),
    ]


async def overload() -> list[BenchRow]:
    """Ask for more than a generator can send: its run is void, with the reason."""
    seen = await observe("first=0 gap=0 sends=1", 8_000.0, 1.0)
    reasons = [why for why in seen.summary.void if "late" in why or "generator" in why]
    how = f"8000 requests/s of one generator: {'; '.join(seen.summary.void) or 'not void'}"
    return [at_least("load.overload.void_reasons", len(reasons), "reasons", 1, how)]


async def many(seconds: float, rounds: int) -> list[BenchRow]:
    """Hold 300 streams open with one generator and two in turn, and half of them with one."""
    rate = STREAMS / MANY_SECONDS
    seen: dict[tuple[int, float], list[Observed]] = {}
    for workers, of in ((1, rate), (2, rate), (1, rate / 2), (2, rate), (1, rate)) * rounds:
        # Streams that began evenly would all have their events at the same few moments.
        run = await observe(MANY, of, seconds, arrivals="poisson", workers=workers)
        seen.setdefault((workers, of), []).append(run)
    ones, twos, half = seen[1, rate], seen[2, rate], seen[1, rate / 2]
    how = f"{STREAMS} streams of {PER_SECOND} events/s for {seconds:g} s, {2 * rounds} runs each"
    lags = [1_000 * (run.summary.lag_p99 or 0.0) for run in ones]
    cost = median(run.cpu_per_stream for run in ones)
    shared = median(run.cpu_per_stream for run in twos)
    alone = median(run.cpu_per_stream for run in half)
    half_how = "two generators over one with half of the schedule, where as little is due at once"
    busiest = median(run.summary.generator_cpu for run in ones)
    return [
        at_most("load.many.lag_p99", median(lags), "ms", LAG_TARGET_MS, how),
        reported("load.many.generator_cpu", busiest, "of a CPU", how),
        reported("load.many.cpu_per_stream", cost, "ms", how),
        at_most("load.workers.cpu_per_stream", shared / cost, "x", 1 + CPU_WITHIN, how),
        reported("load.workers.cpu_of_half", shared / alone, "x", f"{half_how}; {how}"),
        at_most("load.workers.ttft_apart", _apart(ones, twos), "percentiles", 0, how),
    ]


def _apart(ones: Sequence[Observed], twos: Sequence[Observed]) -> int:
    """Count percentiles of TTFT that differ over the pairs of runs, with 5 % for all together.

    Runs are compared, not requests: those of one run share what else the machine did.
    """
    found = (
        paired_mean(*([_ttft(run, share) for run in runs] for runs in (ones, twos)))
        for share in SHARES
    )
    return sum(holm([one.p for one in found]))


def _ttft(run: Observed, share: float) -> float:
    return percentile(sorted(METRICS["ttft"].sample(run.rows)), share)


async def machines(seconds: float, rounds: int) -> list[BenchRow]:
    """Load from one process, and from a master with two workers, in turn."""
    script, rows = SERVERS["fixed"], list[BenchRow]()
    async with AsyncExitStack() as stack:
        at = Address("127.0.0.1", stack.enter_context(own_port(behind=1)))
        same = partial(differing, own=versions(LOADING))
        master = await stack.enter_async_context(Machines.at(at, 2, same))
        command = module_command("cutover", "load", "--worker", str(at))
        for _ in range(2):
            worker = await asyncio.create_subprocess_exec(*command, env=child_environment())
            stack.push_async_callback(_end, worker)
        await master.gathered()
        engines: tuple[Engine, ...] = ("open", "locust")
        for engine in engines:
            ones, twos = list[Observed](), list[Observed]()
            for _ in range(rounds):
                for seen, by in ((ones, OwnProcesses()), (twos, master)):
                    load = observe(
                        script, 40.0, seconds, arrivals="poisson", engine=engine, generators=by
                    )
                    seen.append(await load)
            found = paired_mean(*([_ttft(run, 0.95) for run in runs] for runs in (ones, twos)))
            how = (
                f"two workers of a master over one process, on one machine, {rounds} runs each of "
                f"{seconds:g} s, {script!r}; "
                + ("40 requests/s" if engine == "open" else f"{USERS} users, thinking {THINK:g} s")
            )
            between = f"95 % interval {found.low or 0.0:.3f} to {found.high or inf:.3f}"
            name = f"load.machines.{engine}"
            rows += [
                reported(f"{name}_ttft_p95", found.value, "x", f"{between}; {how}"),
                at_most(f"{name}_ttft_apart", _apart(ones, twos), "percentiles", 0, how),
            ]
    return rows


async def _end(worker: Process) -> None:
    if worker.returncode is None:
        worker.terminate()
    await worker.wait()


async def measure(effort: Effort) -> list[BenchRow]:
    """Measure all of it; takes about five minutes."""
    return [
        *await truth(5.0),
        *await stopped(4.0),
        *await overload(),
        *await many(15.0, max(effort.rounds // 10, 1)),
        *await machines(5.0, max(effort.rounds // 5, 3)),
    ]
