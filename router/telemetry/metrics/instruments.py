"""The instruments: every metric there is, with its unit in its name, as Prometheus wants it.

Labels take few values: flows, the two stacks, codes, configured models; never what a user sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Across = Literal["livesum", "livemax", "livemin"]
"""What a gauge of several workers is: their sum, the highest or the lowest; of those alive."""

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with the folder where the workers of a host keep their values, read at the import
of Prometheus' client."""

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its name, what it tells, its labels; the buckets of a histogram in its unit."""

    kind: Kind
    name: str
    tells: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    across: Across = "livesum"


_WHO = ("flow", "assigned", "served")
_MODEL = ("flow", "stack", "role", "model", "asked")

FIRST_FRAME = Instrument(
    "histogram",
    "cutover_time_to_first_frame_seconds",
    "From the request to the first frame",
    _WHO,
    _QUICK,
)
FIRST_TEXT = Instrument(
    "histogram",
    "cutover_time_to_first_text_seconds",
    "From the request to the first frame with text of the answer",
    _WHO,
    _QUICK,
)
DURATION = Instrument(
    "histogram",
    "cutover_exchange_duration_seconds",
    "From the request to the end of its stream",
    _WHO,
    _LONG,
)
EXCHANGES = Instrument(
    "counter", "cutover_exchanges_total", "Exchanges by how they ended", (*_WHO, "outcome")
)
STAND_INS = Instrument(
    "counter",
    "cutover_stand_ins_total",
    "Exchanges another stack served: instead of a spared one, as a fallback, or in a takeover",
    (*_WHO, "how", "reason"),
)
LOST = Instrument(
    "counter",
    "cutover_stand_in_lost_seconds_total",
    "What clients waited for stacks that had failed",
    _WHO,
)
REFUSALS = Instrument(
    "counter",
    "cutover_refusals_total",
    "Requests answered with a problem, by the router or by a flow",
    ("flow", "status", "code"),
)
TOKENS = Instrument(
    "counter",
    "cutover_tokens_total",
    "Tokens of live model calls, as providers reported them",
    (*_MODEL, "kind"),
)
COST = Instrument(
    "counter",
    "cutover_cost_total",
    "Cost of live model calls, in the money of the configured prices",
    _MODEL,
)
LEDGER = Instrument(
    "counter",
    "cutover_ledger_total",
    "Exchanges by where their shadow ended",
    ("flow", "state", "reason"),
)
CAPTURES_WRITTEN = Instrument(
    "counter", "cutover_captures_written_total", "Exchanges and feedbacks written down"
)
CAPTURES_DROPPED = Instrument(
    "counter",
    "cutover_captures_dropped_total",
    "Exchanges and feedbacks that could not be written down",
    ("reason",),
)
QA_IGNORED = Instrument(
    "counter", "cutover_qa_headers_ignored_total", "QA headers that were not valid"
)
EDITS_REFUSED = Instrument(
    "counter",
    "cutover_configuration_refused_total",
    "Edits of the configuration that were refused",
)
FAULTS = Instrument(
    "gauge",
    "cutover_faults",
    "1 while a part does not work as configured, as /readyz tells it",
    ("part",),
    across="livemax",
)
BREAKER = Instrument(
    "gauge",
    "cutover_breaker_state",
    "0 closed, 1 probing, 2 open",
    ("flow", "stack"),
    across="livemax",
)
ATTEMPTS = Instrument(
    "counter",
    "cutover_model_attempts_total",
    "Requests to providers by what came of them: completed, left, unlike or the code of a fault",
    ("model", "provider", "outcome"),
)
RESCUES = Instrument(
    "counter",
    "cutover_model_rescues_total",
    "What followed requests to providers that did not complete, and which model was asked then",
    ("model", "how", "reason", "then"),
)
PROVIDER_BREAKER = Instrument(
    "gauge",
    "cutover_provider_breaker_state",
    "0 closed, 1 probing, 2 open; by provider and its own name of the model",
    ("provider", "model"),
    across="livemax",
)
PROVIDER_SPARED = Instrument(
    "counter",
    "cutover_provider_breaker_spared_total",
    "Requests that an open breaker kept from a provider",
    ("provider", "model"),
)
RECALLS = Instrument(
    "counter",
    "cutover_memory_recalls_total",
    "Recalls from long-term memory: by vectors, by vectors_and_text, or by text alone",
    ("by",),
)
EMBEDDING_FAILURES = Instrument(
    "counter",
    "cutover_memory_embedding_failures_total",
    "Times nobody could make vectors while somebody waited, by the code of the fault",
    ("code",),
)
OPEN_STREAMS = Instrument(
    "gauge", "cutover_open_streams", "Exchanges that are being served", ("flow",)
)
UNSETTLED = Instrument(
    "gauge", "cutover_ledger_open", "Exchanges whose shadow has not ended in the ledger yet"
)
SHADOWS_WAITING = Instrument(
    "gauge", "cutover_shadows_waiting", "Exchanges that wait for their shadow"
)
SHADOW_LAG = Instrument(
    "gauge",
    "cutover_shadow_lag_seconds",
    "How long the shadow that runs now has been due",
    across="livemax",
)
CAPTURES_WAITING = Instrument(
    "gauge", "cutover_captures_waiting", "Exchanges and feedbacks that wait for the disk"
)
BYTES_LEFT = Instrument(
    "gauge",
    "cutover_tape_budget_left_bytes",
    "What all tapes of a worker together may still hold",
    across="livemin",
)
LOOP_LAG = Instrument(
    "gauge",
    "cutover_event_loop_lag_seconds",
    "The longest the event loop was late in the last fifteen seconds",
    across="livemax",
)

INSTRUMENTS = (
    FIRST_FRAME,
    FIRST_TEXT,
    DURATION,
    EXCHANGES,
    STAND_INS,
    LOST,
    REFUSALS,
    TOKENS,
    COST,
    LEDGER,
    CAPTURES_WRITTEN,
    CAPTURES_DROPPED,
    QA_IGNORED,
    EDITS_REFUSED,
    FAULTS,
    BREAKER,
    ATTEMPTS,
    RESCUES,
    PROVIDER_BREAKER,
    PROVIDER_SPARED,
    RECALLS,
    EMBEDDING_FAILURES,
    OPEN_STREAMS,
    UNSETTLED,
    SHADOWS_WAITING,
    SHADOW_LAG,
    CAPTURES_WAITING,
    BYTES_LEFT,
    LOOP_LAG,
)
