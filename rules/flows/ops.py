"""The ops flow: instructions to workers, one a step, and approvals of risky ones."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cutover.flow import Operation, Pausing
from cutover.flow_spec import FlowSpec, Grammar, Text, many, maybe, one
from rules.flows.fields import (
    ErrorEvent,
    FlowOptions,
    Identifier,
    MessageText,
    NamedEvent,
    Temperature,
    Tokens,
)
from rules.flows.session import StoredMessage
from rules.forms import HumanAnswer

Risk = Literal["low", "medium", "high", "critical"]

Iterations = Annotated[int, Meta(ge=1, le=50)]
# An approval is a person's: white space alone names none.
Person = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*\Z")
]


class OpsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /ops/react`."""

    input: MessageText
    session_id: Identifier
    max_iterations: Iterations | None = None


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /ops/resume`: the decision on an instruction, and who made it.

    The instruction is named by its approval, or by the session that waits for one.
    """

    approved: bool
    by: Person
    approval_id: Identifier | None = None
    session_id: Identifier | None = None

    def __post_init__(self) -> None:
        if (self.approval_id is None) == (self.session_id is None):
            message = "exactly one of approval_id and session_id is needed"
            raise ValueError(message)


class OpsOptions(FlowOptions, frozen=True, kw_only=True):
    """Options of the ops flow; `max_iterations` holds where the request names none."""

    flow = "ops"
    temperature: Temperature = 0.0
    max_iterations: Iterations = 10
    history_tokens: Tokens = 8_000


class OpsStep(NamedEvent, frozen=True, tag="step"):
    """The instruction of an iteration, from 1; `args` is a JSON object."""

    iteration: int
    worker: str
    action: str
    args: dict[str, Any]
    risk: Risk


class OpsProgress(NamedEvent, frozen=True, tag="progress"):
    """A line of progress of the worker."""

    worker: str
    message: str


class OpsResult(NamedEvent, frozen=True, tag="result"):
    """What came of an instruction."""

    worker: str
    action: str
    ok: bool
    message: str


class OpsApproval(NamedEvent, frozen=True, tag="approval_required"):
    """A risky instruction; the exchange waits for the decision on it."""

    approval_id: str
    worker: str
    action: str
    args: dict[str, Any]
    risk: Risk


class OpsFinal(NamedEvent, frozen=True, tag="final"):
    """The reply to the user."""

    message: str


class OpsDone(NamedEvent, frozen=True, tag="done"):
    """Nothing follows."""

    status: Literal["completed", "approval_required", "rejected", "failed"]


OpsEvent = OpsStep | OpsProgress | OpsResult | OpsApproval | OpsFinal | ErrorEvent | OpsDone


class OpsSession(msgspec.Struct, frozen=True):
    """A session: where its last turn stands, its messages, the approval it waits for."""

    session_id: str
    iteration: int
    messages: tuple[StoredMessage, ...]
    pending: OpsApproval | UnsetType = UNSET


def _decision(body: ResumeRequest) -> HumanAnswer:
    return HumanAnswer("approve" if body.approved else "reject", by=body.by)


OPS = FlowSpec(
    name="ops",
    requests={"/ops/react": OpsRequest},
    options=OpsOptions,
    events=OpsEvent,
    grammar=Grammar(
        (
            many("step", "progress", "result", "approval_required"),
            *(maybe("final"), maybe("error"), one("done")),
        )
    ),
    texts={"final": {"message": Text(growth="total")}},
    pieces=frozenset(),
    failing=lambda _options, code: (ErrorEvent(code), OpsDone("failed")),
    route_keys={"session_id": "session_id"},
    named=True,
    pausing=Pausing(
        questions=frozenset({"approval_required"}),
        suspended=lambda _options: (OpsDone("approval_required"),),
        resume="/ops/resume",
        resume_request=ResumeRequest,
        # Without an approval it names its session, and means the one pause that is open there.
        question_of=lambda body: body.approval_id or "",
        answer_of=_decision,
    ),
    operations=(Operation("GET", "/ops/sessions/{session_id}", "ops.session"),),
)
"""The flow as router and comparison see it."""
