"""Metrics for Prometheus: counted when exchanges end, copied once a second, served as a page.

Its client decides when it is imported whether values stay in this process or, for several workers,
in the folder that `PROMETHEUS_MULTIPROC_DIR` names: only routers with metrics import this module.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from evidence.outcomes import BILLION, counts_of, outcome_of
from router.capture.writer import Dropped
from router.context import LedgerLine, sampled_trace
from router.telemetry import instruments
from router.telemetry.instruments import INSTRUMENTS, OTHER, CodeLabels, Instrument, MetricSources
from router.telemetry.process import memory_limit, process_usage

if TYPE_CHECKING:
    from contract.records import RunRecord
    from router.context import Account, ExchangeContext

BEAT_SECONDS = 0.25
BEATS_A_COPY = 4
BEATS_REMEMBERED = 60

_MICROSECONDS = 1_000_000
# Of `counts_of`, with units and further labels: refusals are counted by their status.
_COUNTED: Mapping[str, tuple[Instrument, float, tuple[str, ...]]] = {
    "exchanges": (instruments.EXCHANGES, 1, ()),
    "errors": (instruments.ERRORS, 1, ()),
    "fallbacks": (instruments.FALLBACKS, 1, ()),
    "lost": (instruments.FALLBACK_LOST, 1 / _MICROSECONDS, ()),
    "client_left": (instruments.CLIENTS_LEFT, 1, ()),
    "prompt_tokens": (instruments.EXCHANGE_TOKENS, 1, ("input",)),
    "completion_tokens": (instruments.EXCHANGE_TOKENS, 1, ("output",)),
    "cost": (instruments.EXCHANGE_COST, 1 / BILLION, ()),
    "tool_calls": (instruments.TOOL_CALLS, 1, ()),
    "tool_failures": (instruments.TOOL_FAILURES, 1, ()),
    "in_doubt": (instruments.IN_DOUBT, 1, ()),
}
_Bucket: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""A bucket of a histogram, by the name and the labels of its sample."""
_STATES: Mapping[str, int] = {"closed": 0, "probing": 1, "open": 2}

# The time a series was made informs of nothing, and doubles what is scraped.
disable_created_metrics()  # type: ignore[no-untyped-call] # the client's own omission


class MetricValues:
    """All instruments, and their values in this process."""

    def __init__(self) -> None:
        self.exemplars = Exemplars()
        self.registry = CollectorRegistry(auto_describe=False)
        self._metrics = {one: _metric(one, self.registry) for one in INSTRUMENTS}
        self._series: dict[tuple[str, ...], Any] = {}

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Add to a counter."""
        self._one(instrument, labels).inc(amount)

    def put(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._one(instrument, labels).set(value)

    def observe(self, instrument: Instrument, value: float, *labels: str, trace: str = "") -> None:
        """Add a value to a histogram; one of a `trace` is the exemplar of its bucket."""
        self._one(instrument, labels).observe(value)
        if trace:
            self.exemplars.note(instrument, value, labels, trace)

    def _one(self, instrument: Instrument, labels: tuple[str, ...]) -> Any:
        # The client's own way to a series takes a lock and half of the time.
        key = (instrument.name, *labels)
        series = self._series.get(key)
        if series is None:
            metric = self._metrics[instrument]
            self._series[key] = series = metric.labels(*labels) if labels else metric
        return series


def _metric(one: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, about, labels = one.name, one.description, one.labels
    match one.kind:
        case "counter":
            return Counter(name, about, labels, registry=registry)
        case "gauge":
            return Gauge(name, about, labels, registry=registry, multiprocess_mode=one.across)
        case "histogram":
            return Histogram(name, about, labels, registry=registry, buckets=one.buckets)


class _Traced(NamedTuple):
    """A value, the trace it is of, and when it was observed, in seconds since the epoch."""

    trace: str
    value: float
    at: float

    @property
    def exemplar(self) -> Exemplar:
        return Exemplar({"trace_id": self.trace}, self.value, self.at)


class Exemplars:
    """The latest value with a trace, in each bucket of each histogram.

    The client has exemplars of its own, but for one process alone.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._latest: dict[_Bucket, _Traced] = {}
        self._changed = False

    def note(
        self, instrument: Instrument, value: float, labels: tuple[str, ...], trace: str
    ) -> None:
        """Note a value of a histogram, and its trace."""
        bounds = instrument.buckets
        place = bisect_left(bounds, value)
        limit = bounds[place] if place < len(bounds) else math.inf
        least: str = floatToGoString(limit)  # type: ignore[no-untyped-call] # the client's own omission
        named = dict(zip(instrument.labels, labels, strict=True), le=least)
        bucket = (f"{instrument.name}_bucket", frozenset(named.items()))
        self._latest[bucket] = _Traced(trace, value, self._wall())
        self._changed = True

    def write(self, folder: Path) -> None:
        """Write them for the other workers of this host, if there are new ones."""
        if self._changed:
            self._changed = False
            draft = folder / f"exemplars_{os.getpid()}.new"
            draft.write_bytes(msgspec.json.encode(list(self._latest.items())))
            draft.replace(folder / f"exemplars_{os.getpid()}.json")

    def attached(self, metrics: Iterable[Metric], folder: Path | None = None) -> Iterator[Metric]:
        """Yield metrics with the exemplars of their buckets; of all workers with a `folder`."""
        latest = self._latest if folder is None else _latest_of_all(folder)
        for metric in metrics:
            if latest and metric.type == "histogram":
                metric.samples = [
                    one if found is None else one._replace(exemplar=found.exemplar)
                    for one in metric.samples
                    for found in (latest.get((one.name, frozenset(one.labels.items()))),)
                ]
            yield metric


def _latest_of_all(folder: Path) -> dict[_Bucket, _Traced]:
    found = [
        written
        for path in folder.glob("exemplars_*.json")
        for written in msgspec.json.decode(path.read_bytes(), type=list[tuple[_Bucket, _Traced]])
    ]
    return dict(sorted(found, key=lambda one: one[1].at))


class ExchangeMetrics:
    """Counts exchanges when they end; `models` are those that are configured now.

    `trace_id` returns the id of the sampled trace of an exchange, or "": its times are exemplars.
    """

    def __init__(
        self,
        values: MetricValues,
        models: Callable[[], Container[str]],
        trace_id: Callable[[ExchangeContext], str] = sampled_trace,
    ) -> None:
        self._values = values
        self._models = models
        self._trace_id = trace_id
        self._codes = CodeLabels()
        self._nodes = CodeLabels()
        # Those of tools and effects: a server of tools, or a service, chooses them.
        self._names = {label: CodeLabels(names=True) for label in ("tool", "what")}

    def refused(self, flow: str, status: int, code: str) -> None:
        """Count a refusal of the router's own."""
        self._values.add(instruments.REFUSALS, 1, flow, str(status), self._codes(code))

    def finished(self, context: ExchangeContext) -> None:
        """Count an exchange, its times, and the nodes and charges of its served runs."""
        self._outcome(context)
        if context.pause_bytes:
            self._values.observe(instruments.PAUSE_BYTES, context.pause_bytes, context.spec.name)
        outcome = context.outcome
        if context.records and outcome is not None and outcome.refusal is not None:
            self.refused(context.spec.name, outcome.refusal.status, outcome.refusal.code)
        for run, account in zip(context.records, context.accounts, strict=True):
            self._run(run, account)

    def _outcome(self, context: ExchangeContext) -> None:
        """Count what became of an exchange for its client, as it is counted of captures."""
        records, values = context.records, self._values
        who = (context.spec.name, context.assignment.stack, context.served)
        took = (context.ended - context.start) / _MICROSECONDS
        trace = self._trace_id(context)
        values.observe(instruments.DURATION, took, *who, trace=trace)
        # Its conversation is no label.
        one = outcome_of(records, context.spec, first_text=context.first_text, conversation="")
        if one is None:
            return
        for instrument, at in (
            (instruments.FIRST_FRAME, one.first_frame),
            (instruments.FIRST_TEXT, one.first_text),
            (instruments.LAST_FRAME, one.last_frame),
            (instruments.LONGEST_GAP, one.longest_gap),
        ):
            if at is not None:
                values.observe(instrument, at / _MICROSECONDS, *who, trace=trace)
        for (measure, *labels), amount in counts_of(one):
            if measure in _COUNTED:
                counter, unit, more = _COUNTED[measure]
                label = self._names.get(counter.labels[-1], self._codes)
                values.add(counter, amount * unit, *who, *more, *map(label, labels))

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Count the times of a shadow's nodes, and what it used beyond the tape."""
        if line.state == "compared":
            self._run(context.records[-1], context.accounts[-1])

    def _run(self, run: RunRecord, account: Account) -> None:
        who, observe = (run.flow, run.stack, run.role), self._values.observe
        for node, spent in run.nodes.items():
            observe(instruments.NODES, spent / _MICROSECONDS, *who, self._nodes(node))
        if run.run_us:
            observe(instruments.RUNS, run.run_us / _MICROSECONDS, *who)
        for charge in account.charges:
            usage = charge.use.usage
            if charge.how != "live" or usage is None:
                continue  # from the tape: counted with the run that made the call
            known = self._models()
            asked, answered = (
                model if model in known else OTHER for model in (charge.requested, charge.answered)
            )
            call = (*who, answered, asked)
            self._values.add(instruments.TOKENS, usage.prompt_tokens, *call, "input")
            self._values.add(instruments.TOKENS, usage.completion_tokens, *call, "output")
            if charge.cost is not None:
                self._values.add(instruments.COST, charge.cost, *call)


class RouterMetrics:
    """Copies what the router counts anyway, and writes the page.

    `folder` is where the workers of this host store their values, if there are several.
    """

    def __init__(self, values: MetricValues, sources: MetricSources, folder: str = "") -> None:
        self._values = values
        self._sources = sources
        self._folder = Path(folder) if folder else None
        self._totals: dict[tuple[str, ...], float] = {}
        self._verdicts: set[tuple[str, str]] = set()
        self._faulty: set[str] = set()
        self._memory_limit = memory_limit()

    @asynccontextmanager
    async def running(
        self, monotonic: Callable[[], float] = time.perf_counter
    ) -> AsyncIterator[None]:
        """Copy once a second for as long as the block lasts, and when it ends; watch the loop."""
        task = asyncio.create_task(self._beat(monotonic), name="metrics")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.copy()

    async def page(self, accepted: str) -> tuple[bytes, str]:
        """Return the page and its media type, for what the request accepts."""
        self.copy()
        try:
            encode, media_type = choose_encoder(accepted)
        except TypeError:  # a version that is no number
            encode, media_type = choose_encoder("")
        # In a thread: some hundred series take milliseconds, which would block streams.
        page = _Page(self._values, self._folder)
        return await asyncio.to_thread(encode, page), media_type

    def copy(self) -> None:
        """Bring the values up to date; counters grow by the difference to the last copy."""
        sources, put = self._sources, self._values.put
        router, captures = sources.router, sources.captures()
        # Alerts read these: Prometheus sees an increase only from a value that it has seen.
        failed = {LedgerLine(flow, "failed", "harness"): 0 for flow in router.flows}
        lost = dict.fromkeys(get_args(Dropped), 0)
        for line, count in {**failed, **router.ledger.counts}.items():
            self._grow(instruments.LEDGER, count, line.flow, line.state, line.reason)
        for sent, count in router.shadows.requests.items():
            self._grow(instruments.SHADOW_REQUESTS, count, *sent)
        self._grow(instruments.QA_IGNORED, router.counts.qa_ignored)
        self._grow(instruments.EDITS_REFUSED, sources.refused())
        self._grow(instruments.CAPTURES_WRITTEN, captures.written)
        for feedback, count in router.feedbacks.items():
            labels = feedback.flow, feedback.assigned, str(feedback.score)
            self._grow(instruments.FEEDBACK, count, *labels)
        for reason, count in {**lost, **captures.dropped}.items():
            self._grow(instruments.CAPTURES_DROPPED, count, reason)
        for flow in router.flows:
            put(instruments.OPEN_STREAMS, router.admission.streams.flows[flow], flow)
            share = router.shares.of(flow)
            put(instruments.CONFIGURED_SHARE, share.configured / 100, flow)
            for stack, exchanges in share.exchanges.items():
                put(instruments.SHARE_EXCHANGES, exchanges, flow, stack)
                put(instruments.PINS, getattr(share.pins, stack), flow, stack)
        for flow, waiting in sources.pauses().items():
            put(instruments.OPEN_PAUSES, waiting.pauses, flow)
            put(instruments.OPEN_PAUSE_BYTES, waiting.size, flow)
        put(instruments.UNSETTLED, router.ledger.open)
        put(instruments.SHADOWS_WAITING, router.shadows.waiting)
        put(instruments.SHADOW_LAG, router.shadows.lag)
        put(instruments.CAPTURES_WAITING, captures.waiting)
        put(instruments.BYTES_LEFT, router.bytes_left)
        for flow, stack, state in router.admission.breakers.states():
            put(instruments.BREAKER, _STATES[state], flow, stack)
        self._copy_providers()
        self._copy_process()
        if self._folder is not None:
            self._values.exemplars.write(self._folder)
        said = set(sources.verdicts().items())
        self._verdicts |= said
        for verdict in self._verdicts:
            put(instruments.GATE_VERDICT, verdict in said, *verdict)
        faults = set(sources.faults())
        self._faulty |= faults
        for part in self._faulty:
            put(instruments.FAULTS, part in faults, part)

    def _copy_process(self) -> None:
        put = self._values.put
        put(instruments.WORKERS, 1)
        with suppress(OSError):  # not Linux
            used = process_usage()
            self._grow(instruments.CPU, used.cpu_seconds)
            put(instruments.MEMORY, used.memory_bytes)
            put(instruments.DESCRIPTORS, used.descriptors)
            put(instruments.DESCRIPTOR_LIMIT, used.descriptor_limit)
            put(instruments.MEMORY_LIMIT, self._memory_limit)

    def _copy_providers(self) -> None:
        model, memory = self._sources.model, self._sources.memory
        if model is not None:
            for one, count in model.counts.attempts.items():
                self._grow(instruments.ATTEMPTS, count, one.model_id, one.provider, one.outcome)
            for line, count in model.counts.followed.items():
                self._grow(instruments.RESCUES, count, *line)
            for breaker in model.breaker_states():
                who = (breaker.provider, breaker.model)
                self._values.put(instruments.PROVIDER_BREAKER, _STATES[breaker.state], *who)
                self._grow(instruments.PROVIDER_REFUSED, breaker.refused, *who)
        if memory is not None:
            for by, count in memory.recalls.items():
                self._grow(instruments.RECALLS, count, by)
            for code, count in memory.failures.items():
                self._grow(instruments.EMBEDDING_FAILURES, count, code)

    def _grow(self, instrument: Instrument, total: float, *labels: str) -> None:
        key = (instrument.name, *labels)
        grown = total - self._totals.get(key, 0)
        if grown or key not in self._totals:
            self._totals[key] = total
            self._values.add(instrument, grown, *labels)

    async def _beat(self, monotonic: Callable[[], float]) -> None:
        late: deque[float] = deque(maxlen=BEATS_REMEMBERED)
        while True:
            self.copy()
            for _ in range(BEATS_A_COPY):
                due = monotonic() + BEAT_SECONDS
                await asyncio.sleep(BEAT_SECONDS)
                late.append(max(monotonic() - due, 0.0))
            self._values.put(instruments.LOOP_LAG, max(late))


class _Page(Collector):
    """All values with their exemplars; those of all workers that store theirs in a folder."""

    def __init__(self, values: MetricValues, folder: Path | None) -> None:
        self._values = values
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return the values, of several workers joined."""
        folder, metrics = self._folder, self._values.registry.collect()
        if folder is not None:
            _drop_ended_workers(folder)
            # A file is empty while its worker begins it: the library cannot read it.
            files = [entry.path for entry in os.scandir(folder) if _holds_values(entry)]
            metrics = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call] # the client's own omission
        return self._values.exemplars.attached(metrics, folder)


def _holds_values(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name.endswith(".db") and entry.stat().st_size > 0
    except FileNotFoundError:  # another worker's page has just dropped it, see below
        return False


def _drop_ended_workers(folder: Path) -> None:
    """Drop the gauges of workers that have ended in any way; their counters stay."""
    for pid in {path.stem.rpartition("_")[2] for path in folder.glob("gauge_live*_*.db")}:
        if pid.isdigit() and not _lives(int(pid)):
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call] # as above


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True
