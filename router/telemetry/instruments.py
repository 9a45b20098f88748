"""The metrics: each with its unit in its name, as Prometheus wants it, and bounded labels.

Labels take few values: flows, the two stacks, codes, configured models; never what a user sent. So
do the names in the access log and in spans. Nothing here imports Prometheus' client.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from effects.model import RescuingModel
    from effects.stores import PauseTotals
    from router.capture.writer import CaptureCounts
    from router.router import Router

Kind = Literal["counter", "gauge", "histogram"]
Across = Literal["livesum", "livemax", "livemin"]
"""How a gauge of several workers is joined, of those alive: sum, highest or lowest."""

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder where the workers of a host store their values, read at the import
of Prometheus' client."""

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BYTES = tuple(float(1_024 << power) for power in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12))
_NODES = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
_LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)


OTHER = "other"
MOST_CODES = 64
"""Codes, nodes or tools that are told apart."""

_NAME = re.compile(r"[\w.:/@-]{1,100}", re.ASCII)
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}|")


def safe_name(value: str) -> str:
    """Return a name, `other` where it does not look like one: it may hold a user's words."""
    return value if _NAME.fullmatch(value) else OTHER


class CodeLabels:
    """Lets through the first `MOST_CODES` different values that look like codes, else `other`.

    The author of a stack chooses its codes and names its nodes, and may have put a user's words
    into one. With `names` they may look like names: a server of tools chooses those of its tools.
    """

    def __init__(self, *, names: bool = False) -> None:
        self._known: set[str] = set()
        self._pattern = _NAME if names else _CODE

    def __call__(self, value: str) -> str:
        """Return the label for a value."""
        if value not in self._known:
            if len(self._known) >= MOST_CODES or not self._pattern.fullmatch(value):
                return OTHER
            self._known.add(value)
        return value


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric; the buckets of a histogram are in its unit."""

    kind: Kind
    name: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    across: Across = "livesum"


class CountingMemory(Protocol):
    """A long-term memory that counts how it found entries, and why it had no vectors."""

    recalls: Counter[str]
    failures: Counter[str]


@dataclass(frozen=True, slots=True)
class MetricSources:
    """What metrics are copied from: `faults` by part, `refused` counts edits of the configuration.

    `model` is the port of all model calls, where this router has one.
    """

    router: Router
    captures: Callable[[], CaptureCounts]
    faults: Callable[[], Mapping[str, str]]
    refused: Callable[[], int] = lambda: 0
    model: RescuingModel | None = None
    memory: CountingMemory | None = None
    verdicts: Callable[[], Mapping[str, str]] = dict
    """What the gate said last, by flow."""
    pauses: Callable[[], Mapping[str, PauseTotals]] = dict
    """What waits for a human, by flow."""


def _counter(name: str, description: str, *labels: str) -> Instrument:
    return Instrument("counter", f"cutover_{name}", description, labels)


def _gauge(name: str, description: str, *labels: str, across: Across = "livesum") -> Instrument:
    return Instrument("gauge", f"cutover_{name}", description, labels, across=across)


def _histogram(name: str, description: str, *labels: str, buckets: tuple[float, ...]) -> Instrument:
    return Instrument("histogram", f"cutover_{name}", description, labels, buckets)


_STACKS = ("flow", "assigned", "served")
_RUN = ("flow", "stack", "role")
_MODEL = ("flow", "stack", "role", "model", "asked")

FIRST_FRAME = _histogram(
    "time_to_first_frame_seconds", "From the request to the first frame", *_STACKS, buckets=_QUICK
)
FIRST_TEXT = _histogram(
    "time_to_first_text_seconds",
    "From the request to the first frame with text of the answer",
    *_STACKS,
    buckets=_QUICK,
)
DURATION = _histogram(
    "exchange_duration_seconds",
    "From the request until its client has read the stream to its end, or has left",
    *_STACKS,
    buckets=_LONG,
)
LAST_FRAME = _histogram(
    "time_to_last_frame_seconds",
    "From the request to the last frame: end to end, as the gate counts it",
    *_STACKS,
    buckets=_LONG,
)
LONGEST_GAP = _histogram(
    "longest_gap_seconds", "The longest wait between two frames", *_STACKS, buckets=_QUICK
)
PAUSE_BYTES = _histogram(
    "stored_pause_bytes",
    "The row in which an exchange waits for a human, as it is stored",
    "flow",
    buckets=_BYTES,
)
EXCHANGES = _counter("exchanges_total", "Exchanges by how they ended", *_STACKS, "outcome")
ERRORS = _counter(
    "exchange_errors_total", "Exchanges that failed, broke off or timed out", *_STACKS, "code"
)
CLIENTS_LEFT = _counter(
    "clients_left_total",
    "Exchanges whose client left before the end, or did not read",
    *_STACKS,
)
EXCHANGE_TOKENS = _counter(
    "exchange_tokens_total", "Tokens of the live model calls of served runs", *_STACKS, "kind"
)
EXCHANGE_COST = _counter(
    "exchange_cost_total",
    "Cost of the live model calls of served runs, in the currency of the configured prices",
    *_STACKS,
)
TOOL_CALLS = _counter(
    "tool_calls_total", "Tool calls of exchanges, played ones left out", *_STACKS, "tool"
)
TOOL_FAILURES = _counter(
    "tool_failures_total", "Tool calls that ended in an error", *_STACKS, "tool"
)
IN_DOUBT = _counter(
    "effects_in_doubt_total",
    "Writes that began and whose outcome nobody knows, by what they do",
    *_STACKS,
    "what",
)
FALLBACKS = _counter(
    "fallbacks_total",
    "Exchanges another stack served: with an open breaker, as a fallback, or in a takeover",
    *_STACKS,
    "how",
    "reason",
)
FALLBACK_LOST = _counter(
    "fallback_lost_seconds_total", "Seconds clients waited for stacks that then failed", *_STACKS
)
REFUSALS = _counter(
    "refusals_total",
    "Requests answered with a problem, by the router or by a flow",
    "flow",
    "status",
    "code",
)
NODES = _histogram(
    "node_seconds",
    "Time in which a node of a run was open, waiting included",
    *_RUN,
    "node",
    buckets=_NODES,
)
RUNS = _histogram(
    "run_seconds",
    "From the start of a run until its last node closed",
    *_RUN,
    buckets=_NODES,
)
FEEDBACK = _counter(
    "feedback_total", "Feedback as it was sent, repeated ones included", "flow", "assigned", "score"
)
TOKENS = _counter(
    "tokens_total", "Tokens of live model calls, as providers reported them", *_MODEL, "kind"
)
COST = _counter(
    "cost_total", "Cost of live model calls, in the currency of the configured prices", *_MODEL
)
LEDGER = _counter(
    "ledger_total", "Exchanges by where their shadow ended", "flow", "state", "reason"
)
SHADOW_REQUESTS = _counter(
    "shadow_requests_total",
    "Shadow requests sent to services, by how their runs ended",
    "flow",
    "stack",
    "result",
)
CAPTURES_WRITTEN = _counter("captures_written_total", "Exchanges and feedbacks stored")
CAPTURES_DROPPED = _counter(
    "captures_dropped_total",
    "Exchanges, second runs and feedbacks that could not be stored",
    "reason",
)
QA_IGNORED = _counter("qa_headers_ignored_total", "QA headers that were not valid")
EDITS_REFUSED = _counter(
    "configuration_refused_total", "Edits of the configuration that were refused"
)
FAULTS = _gauge(
    "faults",
    "1 while a part does not work as configured, as /readyz reports it",
    "part",
    across="livemax",
)
BREAKER = _gauge("breaker_state", "0 closed, 1 probing, 2 open", "flow", "stack", across="livemax")
ATTEMPTS = _counter(
    "model_attempts_total",
    "Requests to providers by outcome: completed, left, unlike or the code of a fault",
    "model",
    "provider",
    "outcome",
)
RESCUES = _counter(
    "model_rescues_total",
    "What followed requests to providers that did not complete, and the model called next",
    "model",
    "how",
    "reason",
    "then",
)
PROVIDER_BREAKER = _gauge(
    "provider_breaker_state",
    "0 closed, 1 probing, 2 open; by provider and its own name of the model",
    "provider",
    "model",
    across="livemax",
)
PROVIDER_REFUSED = _counter(
    "provider_breaker_refused_total",
    "Requests that an open breaker kept from a provider",
    "provider",
    "model",
)
RECALLS = _counter(
    "memory_recalls_total",
    "Recalls from long-term memory: by vectors, by vectors_and_text, or by text alone",
    "by",
)
EMBEDDING_FAILURES = _counter(
    "memory_embedding_failures_total",
    "Times no vectors could be made for a waiting caller, by the code of the fault",
    "code",
)
CONFIGURED_SHARE = _gauge(
    "configured_share_ratio",
    "The share of graph as configured, 0 to 1; 0 where it is switched off",
    "flow",
    across="livemax",
)
SHARE_EXCHANGES = _gauge(
    "share_exchanges",
    "Exchanges since the routing of their flow changed, of 15 minutes at most, by the stack that "
    "served: the effective share is that of graph",
    "flow",
    "served",
)
PINS = _gauge(
    "pins",
    "Conversations that stay on a stack whatever the percentage, counted every minute",
    "flow",
    "stack",
    across="livemax",
)
OPEN_PAUSES = _gauge(
    "open_pauses",
    "Exchanges that wait for a human, or are being resumed, counted every minute",
    "flow",
    across="livemax",
)
OPEN_PAUSE_BYTES = _gauge(
    "open_pause_bytes",
    "Tapes, questions and answers of these, as they are stored",
    "flow",
    across="livemax",
)
OPEN_STREAMS = _gauge("open_streams", "Exchanges that are being served", "flow")
UNSETTLED = _gauge("ledger_open", "Exchanges whose shadow has not ended in the ledger yet")
SHADOWS_WAITING = _gauge("shadows_waiting", "Exchanges that wait for their shadow")
SHADOW_LAG = _gauge(
    "shadow_lag_seconds", "How long the shadow that runs now has been due", across="livemax"
)
CAPTURES_WAITING = _gauge(
    "captures_waiting", "Exchanges, second runs and feedbacks that wait for the disk"
)
BYTES_LEFT = _gauge(
    "tape_budget_left_bytes", "What all tapes of a worker together may still hold", across="livemin"
)
LOOP_LAG = _gauge(
    "event_loop_lag_seconds",
    "The longest delay of the event loop in the last fifteen seconds",
    across="livemax",
)
WORKERS = _gauge("workers", "Worker processes that are alive")
CPU = _counter("cpu_seconds_total", "Processor time of all workers, user and system")
MEMORY = _gauge("resident_memory_bytes", "Resident memory of all workers")
MEMORY_LIMIT = _gauge(
    "memory_limit_bytes", "Memory of the machine, or the control group's limit", across="livemin"
)
DESCRIPTORS = _gauge(
    "open_descriptors", "Open descriptors of the worker that has most", across="livemax"
)
DESCRIPTOR_LIMIT = _gauge(
    "descriptor_limit", "How many descriptors a worker may open", across="livemin"
)
GATE_VERDICT = _gauge(
    "gate_verdict",
    "1 for what the gate said at the last look of `cutover ramp` on this host, for an hour",
    "flow",
    "verdict",
    across="livemax",
)

INSTRUMENTS = tuple(value for value in globals().values() if isinstance(value, Instrument))
