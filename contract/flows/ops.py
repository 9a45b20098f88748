"""The ops flow: its requests, options and events, how its approvals are given, and its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contract.flow import (
    ContinueEndpoint,
    Event,
    FlowSpec,
    Pausing,
    SessionStore,
    StoreEndpoint,
)
from contract.flows.chat import Identifier, Text, check_texts
from contract.flows.session import StoredMessage, stored_messages, unknown_session
from contract.grammar import Grammar, many, maybe, one
from contract.human import HumanAnswer, PendingQuestion
from contract.wire import Dialect
from contract.wire.sse import NamedEventEncoder
from contract.workers import Risk, WorkerArgument

Status = Literal["completed", "approval_required", "rejected", "failed"]

MOST_ITERATIONS = 50
"""The hard limit of a turn, whatever request and options allow."""
TEXT_NAMES = frozenset({"approval_title", "refused", "unavailable", "rejected", "completed"})
"""Names of the fixed texts of `rules.ops.flow`."""

# A decision is somebody's: white space alone names nobody.
Person = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*\Z")
]
Iterations = Annotated[int, Meta(ge=1, le=MOST_ITERATIONS)]


class OpsRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `POST /ops/react`."""

    input: Text
    session_id: Identifier
    max_iterations: Iterations | None = None


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /ops/resume`: the decision on one instruction, and who made it."""

    approval_id: Identifier
    approved: bool
    by: Person


class OpsOptions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Options of the ops flow.

    `max_iterations` where the request names none. `approvals`: risky instructions are asked for,
    or refused without an approver. `history_tokens` in estimated tokens, `lock_ttl` in seconds; 0
    `max_tokens` means the model's own limit. `texts` overrides the fixed texts by their names.
    """

    model_id: str = "gpt-4.1"
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    max_tokens: Annotated[int, Meta(ge=0, le=65_536)] = 0
    max_iterations: Iterations = 10
    approvals: Literal["ask", "refuse"] = "ask"
    history_limit: Annotated[int, Meta(ge=1, le=1_000)] = 20
    history_tokens: Annotated[int, Meta(ge=0)] = 8_000
    lock_ttl: Annotated[float, Meta(gt=0)] = 60.0
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        check_texts(self.texts, TEXT_NAMES)


class _Strict(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    """An event: its tag is the frame's `event:`, the rest its data, without other keys."""


class OpsStep(_Strict, frozen=True, tag="step"):
    """An instruction of the iteration; its frames follow before those of the next one."""

    iteration: int
    worker: str
    action: str
    args: dict[str, WorkerArgument]
    risk: Risk


class OpsProgress(_Strict, frozen=True, tag="progress"):
    """A line of progress of the worker."""

    worker: str
    message: str


class OpsResult(_Strict, frozen=True, tag="result"):
    """What came of an instruction, or of one stage of a deployment."""

    worker: str
    action: str
    ok: bool
    message: str


class ApprovalRequired(_Strict, frozen=True, tag="approval_required"):
    """A risky instruction; the exchange waits for the decision on it."""

    approval_id: str
    worker: str
    action: str
    args: dict[str, WorkerArgument]
    risk: Risk


class OpsFinal(_Strict, frozen=True, tag="final"):
    """The reply to the user."""

    message: str


class OpsError(_Strict, frozen=True, tag="error"):
    """Why the turn broke off: a stable code."""

    code: str


class OpsDone(_Strict, frozen=True, tag="done"):
    """Nothing follows."""

    status: Status


OpsEvent = OpsStep | OpsProgress | OpsResult | ApprovalRequired | OpsFinal | OpsError | OpsDone


def failed(code: str) -> tuple[OpsError, OpsDone]:
    """Build the events that end a turn which broke off."""
    return (OpsError(code), OpsDone("failed"))


def failure(_options: OpsOptions, code: str, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream honestly after `last`."""
    match last:
        case OpsDone():
            return ()
        case OpsError():
            return (OpsDone("failed"),)
        case _:
            return failed(code)


def suspended(_options: OpsOptions, last: Event | None) -> tuple[Event, ...]:
    """Return the events that end a stream which waits for a decision."""
    return () if isinstance(last, OpsDone) else (OpsDone("approval_required"),)


def _approval_id(body: ResumeRequest) -> str:
    return body.approval_id


def _decision(body: ResumeRequest) -> HumanAnswer:
    return HumanAnswer("approve" if body.approved else "reject", by=body.by)


class PendingApproval(msgspec.Struct, frozen=True):
    """An instruction that waits for a decision, as `approval_required` announced it."""

    approval_id: str
    worker: str
    action: str
    args: dict[str, WorkerArgument]
    risk: Risk


class OpsSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session: its messages, oldest first, and where its last turn stands.

    `iteration` is that of the pending approval, or the last of the newest turn that ended.
    """

    session_id: str
    iteration: int
    messages: tuple[StoredMessage, ...]
    pending: PendingApproval | UnsetType = UNSET


async def session(sessions: SessionStore, arguments: Mapping[str, str]) -> OpsSession:
    """Read a session; raises `Refused` 404."""
    name = arguments["session_id"]
    turns, questions = await sessions.turns(name), await sessions.questions(name)
    if not turns:
        raise unknown_session()
    iteration = next((_iteration(turn.data) for turn in reversed(turns) if turn.data), 0)
    pending: PendingApproval | UnsetType = UNSET
    for question in questions:
        iteration, pending = pending_approval(question)
    return OpsSession(name, iteration, stored_messages(turns), pending)


def pending_approval(question: PendingQuestion) -> tuple[int, PendingApproval]:
    """Read the instruction, and its iteration, from the form that asks for its approval."""
    shown = {field.name: str(field.value) for field in question.form.fields}
    return int(shown["iteration"]), PendingApproval(
        question.hitl_id,
        shown["worker"],
        shown["action"],
        msgspec.json.decode(shown["args"], type=dict[str, WorkerArgument]),
        msgspec.convert(shown["risk"], Risk),
    )


def _iteration(data: Mapping[str, object]) -> int:
    value = data.get("iteration")
    return value if isinstance(value, int) else 0


OPS = FlowSpec(
    name="ops",
    path="/ops/react",
    request=OpsRequest,
    options=OpsOptions,
    events=OpsEvent,
    grammar=Grammar(
        (
            many("step", "progress", "result", "approval_required"),
            maybe("final"),
            maybe("error"),
            one("done"),
        ),
        questions=frozenset({"approval_required"}),
    ),
    dialect=Dialect(name="ops", text={"final": "message"}, terminal=("done",)),
    failure=failure,
    encode=NamedEventEncoder(get_args(OpsEvent)).encode,
    route_keys={"session_id": "session_id"},
    pausing=Pausing(
        respond=None,
        resume=ContinueEndpoint("/ops/resume", ResumeRequest, _approval_id, _decision),
        suspended=suspended,
    ),
    store_endpoints=(StoreEndpoint("GET", "/ops/sessions/{session_id}", session, OpsSession),),
)
