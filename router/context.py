"""What the router knows of its exchanges, as facts; and who observes them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from contract.flow import SESSION, FlowSpec, Request
from contract.model import Usage
from contract.records import How, ModelUse, RunRecord
from effects.tape import Entry, StateChange, Tape
from router.stack import Headers, IncomingRequest, RunOutcome, StackName, header_of

log = logging.getLogger(__name__)

AssignedBy = Literal[
    "disabled", "forced_header", "force_list", "other_format", "pinned", "percent", "retired"
]

MESSAGE: Final = "message_id"
"""The route key whose field names a message, where a flow has one."""

LedgerState = Literal["not_sampled", "dropped", "cancelled", "failed", "compared"]


class Assignment(msgspec.Struct, frozen=True):
    """The stack a request is assigned to, its bucket (0 to 99 999), and what decided."""

    stack: StackName
    bucket: int
    why: AssignedBy


TRACE_HEADER: Final = b"traceparent"
# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 1

Price = Callable[[str, Usage], float | None]
"""Returns the cost of a call: the id of the model that answered, its usage; None if unknown."""


class _Requested(msgspec.Struct):
    """The one field of a recorded model call that names its price."""

    model_id: str


_requested = msgspec.json.Decoder(_Requested)


@dataclass(frozen=True, slots=True)
class Charge:
    """One model call of a run: its use, the model id that was requested, and what it cost.

    `cost` is None where no price is known, and for what was played from the tape.
    """

    use: ModelUse
    requested: str
    how: How
    cost: float | None

    @property
    def answered(self) -> str:
        """The id of the model whose tokens these are: the requested one, or a fallback."""
        return self.use.by or self.requested


def charge_of(entry: Entry, how: How, price: Price) -> Charge:
    """Return what a model call on the tape used, and its cost where this run made it."""
    requested = _requested.decode(entry.args).model_id
    model = finish = by = ""
    usage: Usage | None = None
    for chunk in entry.items:
        if chunk is not None:
            model = chunk.model or model
            finish = chunk.finish or finish
            usage = chunk.usage or usage
            by = chunk.by or by
    cost = price(by or requested, usage) if how == "live" and usage is not None else None
    return Charge(ModelUse(model, finish, usage, by), requested, how, cost)


class Account(msgspec.Struct, frozen=True):
    """What a run did beside its record: its first and last stamp, and its model calls.

    `changes` of its graph's state are those of an exchange that is `debugged`.
    """

    began: int
    ended: int
    charges: tuple[Charge, ...]
    changes: tuple[StateChange, ...] = ()


class LedgerLine(msgspec.Struct, frozen=True):
    """Where a shadow ended; `compared` has a `Judgement` as its reason."""

    flow: str
    state: LedgerState
    reason: str = ""


@dataclass(slots=True)
class ExchangeContext:
    """One exchange, from the arrival of its request until its records are handed over.

    `config` is the version of the settings, flags included; `began` is in microseconds since the
    epoch; `resumes` is the paused exchange it goes on from, `paused_us` how long ago that asked its
    question, in microseconds, and `start` the stamp at which it goes on; `own_histories`: each
    stack stores the conversation itself, of which it is the `turn`-th, 0 where that is not known.
    The rest is set when nothing more is sent: `ended`, `first_frame` and `first_text` are
    microseconds since the exchange began; `fallback` is how the other stack served: `breaker` where
    the breaker of the assigned stack is open; `pause_bytes` is the size of the row in which it
    waits for a human; `with_workers`: others write its runs down. `records` and `accounts` are
    those of its runs, the shadow's last.
    """

    exchange: str
    spec: FlowSpec
    request: Request[Any, Any]
    assignment: Assignment
    config: str
    began: int
    tape: Tape
    incoming: IncomingRequest | None = None
    resumes: str = ""
    paused_us: int = 0
    start: int = 0
    own_histories: bool = False
    turn: int = 0
    debugged: bool = False
    ended: int = 0
    served: StackName = "legacy"
    reason: str = ""
    fallback: Literal["", "breaker", "fallback", "takeover"] = ""
    lost_us: int = 0
    pause_bytes: int = 0
    with_workers: bool = False
    outcome: RunOutcome | None = None
    committed: bool = False
    client_left: bool = False
    first_frame: int | None = None
    first_text: int | None = None
    records: list[RunRecord] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)

    @property
    def ids(self) -> dict[str, str]:
        """The ids of its message and its session, where its flow has such."""
        spec, request = self.spec, self.request
        found = {
            MESSAGE: spec.key(request.body, MESSAGE),
            SESSION: spec.conversation(request.body, request.session),
        }
        return {name: value for name, value in found.items() if value}

    @property
    def last_served(self) -> RunRecord | None:
        """The record of the run whose end the client saw; None where none was written."""
        return next((run for run in reversed(self.records) if run.role != "shadow"), None)


class Traces:
    """Which exchange a trace belongs to, while it is open.

    A traced stack sends the trace id of its request with every call to the gateway.
    """

    def __init__(self) -> None:
        self._exchanges: dict[bytes, list[str]] = {}
        self._traces: dict[str, bytes] = {}

    def note(self, exchange: str, headers: Headers) -> None:
        """Note the trace of an exchange's request."""
        trace = trace_of(headers)
        if trace is not None:
            self._traces[exchange] = trace
            self._exchanges.setdefault(trace, []).append(exchange)

    def forget(self, exchange: str) -> None:
        """Drop an exchange that is settled."""
        trace = self._traces.pop(exchange, None)
        if trace is None:
            return
        left = self._exchanges[trace]
        left.remove(exchange)
        if not left:
            del self._exchanges[trace]

    def exchange(self, headers: Headers) -> str | None:
        """Return the exchange a request belongs to; None unless there is exactly one."""
        trace = trace_of(headers)
        open_ones = [] if trace is None else self._exchanges.get(trace, [])
        return open_ones[0] if len(open_ones) == 1 else None


def trace_of(headers: Headers) -> bytes | None:
    """Return the trace id of `traceparent`; None where it is missing or malformed."""
    found = _trace_parent(headers)
    return found[1] if found else None


def sampled_trace(context: ExchangeContext) -> str:
    """Return the id of the trace that the caller of an exchange samples; "" where it has none."""
    found = _trace_parent(context.incoming.headers) if context.incoming is not None else None
    return found[1].decode() if found and int(found[2], 16) & _SAMPLED else ""


def _trace_parent(headers: Headers) -> re.Match[bytes] | None:
    found = _TRACEPARENT.fullmatch(header_of(headers, TRACE_HEADER).strip())
    return found if found and found[1].strip(b"0") else None


@dataclass(slots=True)
class RouterCounts:
    """What the router has done since it started.

    `conversations_moved` counts changes of stack in flows whose stacks store their own histories,
    `histories_lost` those among them to a stack that lacks earlier turns.
    """

    requests: int = 0
    fallbacks: int = 0
    takeovers: int = 0
    bypassed: int = 0
    qa_ignored: int = 0
    disconnected: int = 0
    slow_clients: int = 0
    conversations_moved: int = 0
    histories_lost: int = 0


class Observer(Protocol):
    """Observes requests; never waits. What it raises is logged, and reaches nothing else."""

    def refused(self, flow: str, status: int, code: str) -> None:
        """A request was refused before it became an exchange."""
        ...

    def finished(self, context: ExchangeContext) -> None:
        """An exchange has ended and its served runs are recorded; its shadow may follow."""
        ...

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """The ledger has settled the exchange: nothing follows."""
        ...


def notify(observers: Sequence[Observer], event: str, *facts: Any) -> None:
    """Call a method of each observer, isolated from the others."""
    for observer in observers:
        try:
            getattr(observer, event)(*facts)
        except Exception:
            log.exception("an observer failed on %r", event)
