"""Metrics for Prometheus: counted when exchanges end, copied once a second, served as a page.

Its client decides when it is imported whether values stay in this process or, for several workers,
in the folder that `PROMETHEUS_MULTIPROC_DIR` names: only routers with metrics import this module.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

from evidence.outcomes import counts_of, outcome_of, start_of
from router.telemetry import instruments
from router.telemetry.instruments import INSTRUMENTS, OTHER, CodeLabels, Instrument, MetricSources
from router.telemetry.process import memory_limit, process_usage

if TYPE_CHECKING:
    from contract.records import RunRecord
    from router.context import Account, ExchangeContext, LedgerLine

BEAT_SECONDS = 0.25
BEATS_A_COPY = 4
BEATS_REMEMBERED = 60

_MICROSECONDS = 1_000_000
# Of `counts_of`: refusals are counted by their status, tokens and cost by model.
_COUNTED: Mapping[str, tuple[Instrument, float]] = {
    "exchanges": (instruments.EXCHANGES, 1),
    "errors": (instruments.ERRORS, 1),
    "fallbacks": (instruments.FALLBACKS, 1),
    "lost": (instruments.FALLBACK_LOST, 1 / _MICROSECONDS),
    "client_left": (instruments.CLIENTS_LEFT, 1),
    "tool_calls": (instruments.TOOL_CALLS, 1),
    "tool_failures": (instruments.TOOL_FAILURES, 1),
}
_STATES: Mapping[str, int] = {"closed": 0, "probing": 1, "open": 2}

# The time a series was made informs of nothing, and doubles what is scraped.
disable_created_metrics()  # type: ignore[no-untyped-call] # the client's own omission


class MetricValues:
    """All instruments, and their values in this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._metrics = {one: _metric(one, self.registry) for one in INSTRUMENTS}
        self._series: dict[tuple[str, ...], Any] = {}

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Add to a counter."""
        self._one(instrument, labels).inc(amount)

    def put(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._one(instrument, labels).set(value)

    def observe(self, instrument: Instrument, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        self._one(instrument, labels).observe(value)

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


class ExchangeMetrics:
    """Counts exchanges when they end; `models` are those that are configured now."""

    def __init__(self, values: MetricValues, models: Callable[[], Container[str]]) -> None:
        self._values = values
        self._models = models
        self._codes = CodeLabels()
        self._nodes = CodeLabels()

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
        start = start_of(records) if records else 0
        values.observe(instruments.DURATION, (context.ended - start) / _MICROSECONDS, *who)
        # Its conversation is no label.
        one = outcome_of(records, context.spec, first_text=context.first_text, conversation="")
        if one is None:
            return
        for instrument, at in (
            (instruments.FIRST_FRAME, one.first_frame),
            (instruments.FIRST_TEXT, one.first_text),
            (instruments.LONGEST_GAP, one.longest_gap),
        ):
            if at is not None:
                values.observe(instrument, at / _MICROSECONDS, *who)
        for (measure, *labels), amount in counts_of(one):
            if measure in _COUNTED:
                counter, unit = _COUNTED[measure]
                values.add(counter, amount * unit, *who, *map(self._codes, labels))

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
        self._folder = folder
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
        return await asyncio.to_thread(lambda: encode(self._registry())), media_type

    def copy(self) -> None:
        """Bring the values up to date; counters grow by the difference to the last copy."""
        sources, put = self._sources, self._values.put
        router, captures = sources.router, sources.captures()
        for line, count in router.ledger.counts.items():
            self._grow(instruments.LEDGER, count, line.flow, line.state, line.reason)
        for sent, count in router.shadows.requests.items():
            self._grow(instruments.SHADOW_REQUESTS, count, *sent)
        self._grow(instruments.QA_IGNORED, router.counts.qa_ignored)
        self._grow(instruments.EDITS_REFUSED, sources.refused())
        self._grow(instruments.CAPTURES_WRITTEN, captures.written)
        for feedback, count in router.feedbacks.items():
            labels = feedback.flow, feedback.assigned, str(feedback.score)
            self._grow(instruments.FEEDBACK, count, *labels)
        for reason, count in captures.dropped.items():
            self._grow(instruments.CAPTURES_DROPPED, count, reason)
        for flow in router.flows:
            put(instruments.OPEN_STREAMS, router.admission.streams.flows[flow], flow)
            share = router.shares.of(flow)
            put(instruments.CONFIGURED_SHARE, share.configured / 100, flow)
            for stack, exchanges in share.exchanges.items():
                put(instruments.SHARE_EXCHANGES, exchanges, flow, stack)
                put(instruments.PINS, getattr(share.pins, stack), flow, stack)
        put(instruments.UNSETTLED, router.ledger.open)
        put(instruments.SHADOWS_WAITING, router.shadows.waiting)
        put(instruments.SHADOW_LAG, router.shadows.lag)
        put(instruments.CAPTURES_WAITING, captures.waiting)
        put(instruments.BYTES_LEFT, router.bytes_left)
        for flow, stack, state in router.admission.breakers.states():
            put(instruments.BREAKER, _STATES[state], flow, stack)
        self._copy_providers()
        self._copy_process()
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

    def _registry(self) -> CollectorRegistry:
        if not self._folder:
            return self._values.registry
        _drop_ended_workers(Path(self._folder))
        together = CollectorRegistry()
        together.register(_Workers(Path(self._folder)))
        return together


class _Workers(Collector):
    """The values of all workers that store theirs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return the values of all workers joined."""
        # A file is empty for the moment in which its worker begins it: the library cannot read it.
        files = [entry.path for entry in os.scandir(self._folder) if _holds_values(entry)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call] # the client's own omission
        return merged


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
