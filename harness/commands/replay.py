"""`cutover replay`: a stack on the tapes of captures, in this process or on workers of Dask."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from itertools import takewhile
from os.path import normpath
from threading import Event, Lock
from typing import Any, Final

import typer

from cutover.errors import Failed, Unusable
from cutover.records import RunRecord
from cutover.tape import Exchange, Fork, Run, outside
from harness import root
from harness.config import ModelTable, Settings, StoresTable
from harness.live import versions
from harness.server.gateway import serving_gateway
from harness.services import Services, candidates, chosen, flow_of, open_services
from router.captures import CaptureReader, Captures, Store
from router.captures.reader import POLL_SECONDS
from router.captures.replay import STATES, Compare, Part, Replay, Target, replayed

FILES_AT_ONCE = 8
"""Files that a worker gets at a time."""
IN_MEMORY: Final = frozenset(
    {"audit.write", "conversations.add", "locks.acquire", "locks.release", "store.put"}
)
"""Writes of built-in flows that change the memory of `untouched` alone: forks perform them."""
EQUAL, DIFFERENT, NOT_STORED, NOTHING, UNREADABLE = range(5)
"""Exit statuses; 2 is that of every command that could not do what it was asked."""

_one_at_a_time = Lock()
"""Workers of Dask are threads, and the world is the process's."""


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """What is to be replayed, as it is sent to workers: `settings` hold the captures' key."""

    captures: str
    out: str
    stack: str
    flow: str | None
    part: Part
    settings: Settings
    fork: Fork | None = None


@dataclass(slots=True)
class Summary:
    """What came of a replay; `outside` are calls of stacks that belonged to no run."""

    counts: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)

    def add(self, other: Summary) -> None:
        """Add what a worker has done."""
        for one in fields(self):
            getattr(self, one.name).update(getattr(other, one.name))

    @property
    def replayed(self) -> int:
        """How many exchanges were replayed."""
        return sum(self.counts[state] for state in STATES)

    @property
    def status(self) -> int:
        """The command's exit status."""
        lost = self.damage["torn"] + self.damage["gone"]
        foreign, damaged = self.damage["foreign"], self.counts["damaged"]
        lines, exchanges = self.read["lines"], self.counts["read"]
        if lost * 2 > self.read["files"] or foreign > lines or damaged * 2 > exchanges:
            return UNREADABLE
        if self.dropped:
            return NOT_STORED
        if not self.replayed:
            return NOTHING
        return EQUAL if self.counts["equal"] == self.replayed else DIFFERENT

    def table(self, seconds: float) -> str:
        """Return the summary as aligned lines."""
        skipped = self.counts - Counter({one: self.counts[one] for one in ("read", *STATES)})
        rows = [
            ("exchanges read", f"{self.counts['read']}"),
            ("replayed", f"{self.replayed} in {seconds:.1f} s, {self.replayed / seconds:.1f}/s"),
            *((f"  {state}", f"{self.counts[state]}") for state in STATES),
            ("skipped", f"{skipped.total()}"),
        ]
        further = {
            "": skipped,
            "damage: ": self.damage,
            "not stored: ": self.dropped,
            "outside every run: ": self.outside,
        }
        for kind, counts in further.items():
            rows += [(f"  {kind}{one.replace('_', ' ')}", f"{n}") for one, n in counts.items()]
        return "\n".join(f"{name:<30} {value}" for name, value in rows)


def replay(job: ReplayJob, scheduler: str = "", *, follow: bool = False) -> Summary:
    """Replay until it is done or a signal comes, and print the summary."""
    stop = Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    began = time.monotonic()
    work = partial(on_workers, scheduler) if scheduler else here
    summary = work(job, stop, follow=follow)
    folders = " ".join(dict.fromkeys([job.captures, job.out]))
    typer.echo(f"{summary.table(time.monotonic() - began)}\nnext: cutover diff {folders}")
    return summary


def job_of(
    captures: str,
    stack: str,
    flow: str | None,
    part: str,
    settings: Settings,
    out: str = "",
    fork: Fork | None = None,
) -> ReplayJob:
    """Return a job.

    Raises `typer.BadParameter` for a flow that is none, `Unusable` for such a stack, part or out.
    """
    if fork and (not out or normpath(out) == normpath(captures)):
        raise Unusable(where="--out", reason="name a folder for the forks, apart from the captures")
    flows = chosen([flow] if flow else [], list(settings.flows))
    stacks = {one: _stacks(settings, one) for one in flows}
    settings = untouched(settings, [one for one in flows if stack in stacks[one]], asks=bool(fork))
    if not settings.flows:
        known = ", ".join(sorted(set().union(*stacks.values())))
        raise Unusable(where="--stack", reason=f"{stack!r} is not configured: there are {known}")
    declared = any(table.paths for table in settings.flows.values())
    if declared and stack not in {one for one, at in settings.stacks.items() if at.shadow_safe}:
        why = f"{stack!r} is not shadow_safe: what it does without the tape, it would do once more"
        raise Unusable(where="--stack", reason=why)
    if fork and not declared:  # an effect of a service may have such a name
        fork = Fork(fork.at, fork.model, fork.performs | IN_MEMORY)
    try:
        share = Part.of(part)
    except ValueError as error:
        raise Unusable(where="--part", reason=str(error)) from error
    return ReplayJob(captures, out or captures, stack, flow, share, settings, fork)


def _stacks(settings: Settings, flow: str) -> Collection[str]:
    return settings.stacks.keys() if settings.flows[flow].paths else root.stacks(flow).keys()


def untouched(settings: Settings, flows: Sequence[str], *, asks: bool = False) -> Settings:
    """Return settings with some flows and a world in memory; what `asks` can buy, nothing else can.

    The gateway is there for flows of services alone: another process may listen at its port.
    """
    models = {name: one.model_copy(update={"key": ""}) for name, one in settings.models.items()}
    models = settings.models if asks else models or {"*": ModelTable(key="")}
    kept = {name: settings.flows[name] for name in flows}
    services = any(table.paths for table in kept.values())
    return settings.model_copy(
        update={
            "stores": StoresTable(database="sqlite+aiosqlite://"),
            "models": models,
            "flows": kept,
            "gateway": settings.gateway if services else None,
        }
    )


def here(job: ReplayJob, stop: Event, *, follow: bool = False) -> Summary:
    """Replay in this process, until `stop` is set."""
    reader = CaptureReader(Store(job.captures), job.flow)
    lines = reader.follow(stop, stop.wait) if follow else reader
    done = replayed(Store(job.out), job.stack, job.flow, job.fork)
    return asyncio.run(_replay(job, done, reader, takewhile(lambda _: not stop.is_set(), lines)))


async def _replay(
    job: ReplayJob, done: set[str], reader: CaptureReader, lines: Iterable[RunRecord]
) -> Summary:
    """Replay lines that a reader yields, and store those of the replays."""
    async with Captures(Store(job.out), None) as captures:
        counts, besides = await replay_lines(job, lines, captures, done=done)
    read = Counter({"files": reader.files, "lines": reader.lines})
    return Summary(counts, read, reader.damage, captures.dropped, besides)


async def replay_lines(
    job: ReplayJob,
    lines: Iterable[RunRecord],
    out: Captures,
    compare: Compare = root.equal,
    *,
    done: set[str],
) -> tuple[Counter[str], Counter[str]]:
    """Replay lines in a world that is not touched; return the counts, and calls outside of runs."""
    settings, before = job.settings, outside.copy()
    async with (
        root.opened(settings),
        open_services(settings) as services,
        serving_gateway(settings, services.runs, replays=True),
        Exchange() as nothing,
    ):
        # While a run plays, writes outside of every run are refused, between exchanges, too.
        guard = Run(nothing, job.stack, "replay", "play")
        try:
            targets = {name: _target(job, name, services) for name in settings.flows}
            given = root.redactor(settings), job.part, done, job.fork
            work = Replay(job.stack, targets, compare, out, *given)
            await work.run(lines)
        finally:
            guard.end(Failed("replayed"))
    return work.counts, outside - before + services.runs.uncorrelated


def _target(job: ReplayJob, name: str, services: Services) -> Target:
    table = job.settings.flows[name]
    if table.paths:
        found = candidates(job.settings, table, services)
        found = {one: stack for one, stack in found.items() if stack.shadow_safe}
    else:
        found = root.built_in(name)
    return Target(flow_of(name, job.settings), found, versions(job.settings, name))


def on_workers(scheduler: str, job: ReplayJob, stop: Event, *, follow: bool = False) -> Summary:
    """Replay on the workers of a Dask cluster, some files at a time, until `stop` is set.

    What workers are at when it is set they end; raises `Unusable` without the package.
    """
    try:
        dask: Any = import_module("distributed")
    except ImportError as error:
        raise Unusable(where="--scheduler, with cutover[dask]", reason=str(error)) from error
    store, summary, known = Store(job.captures), Summary(), set[str]()
    with dask.Client(scheduler) as client:
        before = replayed(Store(job.out), job.stack, job.flow, job.fork)
        done = client.scatter({"done": before})["done"]
        while not stop.is_set():
            new = [name for name in store.names(job.flow) if name not in known]
            known.update(new)
            shares = [new[at : at + FILES_AT_ONCE] for at in range(0, len(new), FILES_AT_ONCE)]
            tasks = client.map(partial(_on_worker, job), shares, done=done, pure=False)
            for task in dask.as_completed(tasks):
                summary.add(task.result())
                if stop.is_set():
                    client.cancel(tasks)
                    break
            if not follow:
                break
            stop.wait(POLL_SECONDS)
    return summary


def _on_worker(job: ReplayJob, files: Sequence[str], done: set[str]) -> Summary:
    reader = CaptureReader(Store(job.captures), job.flow, files)
    with _one_at_a_time:
        return asyncio.run(_replay(job, set(done), reader, reader))
