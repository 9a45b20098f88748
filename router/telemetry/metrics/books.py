"""What the router counts anyway, copied onto the panel now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from router.telemetry.metrics import instruments as i

if TYPE_CHECKING:
    from effects.circuit_breaker import State
    from effects.circuit_breaker import State as ProviderState
    from effects.model import RescuingModel
    from router.capture.writer import CaptureCounts
    from router.router import Router
    from router.telemetry.metrics.instruments import Instrument
    from router.telemetry.metrics.panel import Panel


_STATES: Mapping[State, int] = {"closed": 0, "probing": 1, "open": 2}
_PROVIDERS: Mapping[ProviderState, int] = {"closed": 0, "probing": 1, "open": 2}


class Counted(Protocol):
    """Captures that tell what they did."""

    @property
    def counts(self) -> CaptureCounts:
        """Count what happened so far."""
        ...


class Remembering(Protocol):
    """A long-term memory that tells how it found entries, and why it had no vectors."""

    recalls: Counter[str]
    failures: Counter[str]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the books are: `faults` by part, `refused` is how many edits have been.

    `model` is the port all models are asked through, where this router has one.
    """

    router: Router
    captures: Counted
    faults: Callable[[], Mapping[str, str]]
    refused: Callable[[], int] = lambda: 0
    model: RescuingModel | None = None
    memory: Remembering | None = None


class Books:
    """Copies the books; counters grow by what has come since the last time."""

    def __init__(self, panel: Panel, sources: Sources) -> None:
        self._panel = panel
        self._sources = sources
        self._told: dict[tuple[str, ...], int] = {}
        self._faulty: set[str] = set()

    def copy(self) -> None:
        """Bring the panel up to date."""
        sources, put = self._sources, self._panel.put
        router, captures = sources.router, sources.captures.counts
        for line, count in router.ledger.counts.items():
            self._grow(i.LEDGER, count, line.flow, line.state, line.reason)
        self._grow(i.QA_IGNORED, router.counts.qa_ignored)
        self._grow(i.EDITS_REFUSED, sources.refused())
        self._grow(i.CAPTURES_WRITTEN, captures.written)
        for reason, count in captures.dropped.items():
            self._grow(i.CAPTURES_DROPPED, count, reason)
        open_streams = router.open_streams
        for flow in router.flows:
            put(i.OPEN_STREAMS, open_streams[flow], flow)
        put(i.UNSETTLED, router.ledger.open)
        put(i.SHADOWS_WAITING, router.shadows.scheduler.waiting)
        put(i.SHADOW_LAG, router.shadows.scheduler.lag)
        put(i.CAPTURES_WAITING, captures.waiting)
        put(i.BYTES_LEFT, router.bytes_left)
        for flow, stack, state in router.admission.breakers.states():
            put(i.BREAKER, _STATES[state], flow, stack)
        if sources.model is not None:
            self._providers(sources.model)
        if sources.memory is not None:
            self._recalls(sources.memory)
        self._tell_faults(set(sources.faults()))

    def _providers(self, model: RescuingModel) -> None:
        """Tell what came of asking providers, and whom their breakers spare."""
        for asked, count in model.counts.attempts.items():
            self._grow(i.ATTEMPTS, count, asked.model_id, asked.provider, asked.outcome)
        for line, count in model.counts.followed.items():
            self._grow(i.RESCUES, count, *line)
        for breaker in model.breaker_states():
            who = (breaker.provider, breaker.model)
            self._panel.put(i.PROVIDER_BREAKER, _PROVIDERS[breaker.state], *who)
            self._grow(i.PROVIDER_SPARED, breaker.refused, *who)

    def _recalls(self, memory: Remembering) -> None:
        """Tell how entries were found."""
        for by, count in memory.recalls.items():
            self._grow(i.RECALLS, count, by)
        for code, count in memory.failures.items():
            self._grow(i.EMBEDDING_FAILURES, count, code)

    def _grow(self, instrument: Instrument, total: int, *labels: str) -> None:
        key = (instrument.name, *labels)
        grown = total - self._told.get(key, 0)
        if grown or key not in self._told:
            self._told[key] = total
            self._panel.add(instrument, grown, *labels)

    def _tell_faults(self, parts: set[str]) -> None:
        self._faulty |= parts
        for part in self._faulty:
            self._panel.put(i.FAULTS, part in parts, part)
