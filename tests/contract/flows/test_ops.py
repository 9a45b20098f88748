"""The ops flow's wire: its exact bytes, its endings, its decisions, its sessions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from contract.errors import Refused
from contract.flows.ops import (
    OPS,
    ApprovalRequired,
    OpsDone,
    OpsError,
    OpsEvent,
    OpsFinal,
    OpsOptions,
    OpsProgress,
    OpsRequest,
    OpsResult,
    OpsSession,
    OpsStep,
    PendingApproval,
    ResumeRequest,
    session,
)
from contract.grammar import GrammarCheck
from contract.human import Form, FormField, HumanAnswer, PendingQuestion
from contract.stores import Turn
from contract.wire import WireReader

EVENTS: list[tuple[OpsEvent, str]] = [
    (
        OpsStep(1, "network", "reach", {"host": "db", "port": 5432}, "low"),
        (
            'event: step\ndata: {"iteration":1,"worker":"network","action":"reach",'
            '"args":{"host":"db","port":5432},"risk":"low"}\n\n'
        ),
    ),
    (
        OpsProgress("network", "试\n"),
        'event: progress\ndata: {"worker":"network","message":"试\\n"}\n\n',
    ),
    (
        OpsResult("network", "reach", ok=True, message="up"),
        ('event: result\ndata: {"worker":"network","action":"reach","ok":true,"message":"up"}\n\n'),
    ),
    (
        ApprovalRequired("h-1", "container", "restart", {"name": "web"}, "high"),
        (
            'event: approval_required\ndata: {"approval_id":"h-1","worker":"container",'
            '"action":"restart","args":{"name":"web"},"risk":"high"}\n\n'
        ),
    ),
    (OpsFinal("好"), 'event: final\ndata: {"message":"好"}\n\n'),
    (OpsError("model_error"), 'event: error\ndata: {"code":"model_error"}\n\n'),
    (OpsDone("rejected"), 'event: done\ndata: {"status":"rejected"}\n\n'),
]


@pytest.mark.parametrize(("event", "frame"), EVENTS)
def test_an_event_has_exactly_these_bytes(event: OpsEvent, frame: str) -> None:
    """They read back as the same event."""
    assert OPS.encode(event).decode() == frame
    (read,) = WireReader(OPS.decoder).feed(frame.encode())
    assert read.name == OPS.name_of(event)
    assert msgspec.json.decode(read.data, type=type(event)) == event
    assert read.ends is isinstance(event, OpsDone)
    assert read.failure == ("model_error" if isinstance(event, OpsError) else None)
    assert read.text() == OPS.text_of(event)


@pytest.mark.parametrize("last", [None, *(event for event, _ in EVENTS)])
def test_any_stream_can_be_ended_by_a_failure_or_a_pause(last: OpsEvent | None) -> None:
    """The grammar holds, and a stream that is over stays as it is."""
    assert OPS.pausing is not None
    over = isinstance(last, OpsDone)
    for ending, status in (
        (OPS.failure(OpsOptions(), "crash", last), "failed"),
        (OPS.pausing.suspended(OpsOptions(), last), "approval_required"),
    ):
        check = GrammarCheck(OPS.grammar)
        for event in ([last] if last else []) + list(ending):
            check.event(OPS.name_of(event))
        assert check.complete
        assert over == (not ending)
        assert over or ending[-1] == OpsDone(status)  # type: ignore[arg-type] # one of them


BODY: dict[str, object] = {"input": "check the disks", "session_id": "s"}
DECISION: dict[str, object] = {"approval_id": "h", "approved": True, "by": "ann"}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *((OpsRequest, {k: v for k, v in BODY.items() if k != name}) for name in BODY),
        (OpsRequest, {**BODY, "input": " \n"}),
        (OpsRequest, {**BODY, "max_iterations": 0}),
        (OpsRequest, {**BODY, "max_iterations": 51}),
        *((ResumeRequest, {k: v for k, v in DECISION.items() if k != name}) for name in DECISION),
        (ResumeRequest, {**DECISION, "approved": "yes"}),
        *((ResumeRequest, {**DECISION, "by": by}) for by in ("", " ", "\u3000", "a\n", "a" * 129)),
        (OpsOptions, {"max_iterations": 51}),
        (OpsOptions, {"approvals": "grant"}),
        (OpsOptions, {"texts": {"warn": "x"}}),
    ],
)
def test_what_cannot_hold_is_refused(kind: type[msgspec.Struct], wrong: object) -> None:
    """What is missing, blank, out of bounds or misspelt."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, kind)


@pytest.mark.parametrize(("approved", "action"), [(True, "approve"), (False, "reject")])
def test_a_decision_names_its_instruction_and_who_made_it(approved: bool, action: str) -> None:
    """It comes with the request to go on."""
    assert OPS.pausing is not None
    resume = OPS.pausing.resume
    body = msgspec.convert({**DECISION, "approved": approved}, ResumeRequest)
    assert resume.hitl_id(body) == "h"
    assert resume.answer is not None
    assert resume.answer(body) == HumanAnswer(action, by="ann")  # type: ignore[arg-type] # one of them


class Stored:
    """A session in no store."""

    def __init__(self, turns: tuple[Turn, ...], questions: tuple[PendingQuestion, ...]) -> None:
        self._turns = turns
        self._questions = questions

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Return the turns."""
        return tuple(turn for turn in self._turns if turn.chat_id == session_id)

    async def questions(self, session_id: str) -> tuple[PendingQuestion, ...]:
        """Return the questions."""
        return self._questions if session_id == "s" else ()

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Forget nothing."""
        raise NotImplementedError(session_id, lock)


ASKED = Turn(message_id="m-1", role="user", content="restart web", chat_id="s")
TOLD = Turn(
    message_id="m-2",
    role="assistant",
    content="restarted",
    chat_id="s",
    reply_to="m-1",
    data={"iteration": 3},
)
ARGS = '{"name":"web"}'
FORM: Mapping[str, str] = {
    "worker": "container",
    "action": "restart",
    "risk": "high",
    "args": ARGS,
    "iteration": "2",
}
QUESTION = PendingQuestion(
    "h-1",
    Form(
        "?",
        tuple(FormField(key, key, "text", required=True, value=one) for key, one in FORM.items()),
    ),
)


async def test_a_session_has_its_messages_its_iteration_and_what_waits() -> None:
    """As the last event announced it; an unknown one is refused."""
    ended = await session(Stored((ASKED, TOLD), ()), {"session_id": "s"})
    assert (ended.iteration, ended.pending) == (3, msgspec.UNSET)
    assert [(one.id, one.role) for one in ended.messages] == [("m-1", "user"), ("m-2", "assistant")]
    waits = await session(Stored((ASKED,), (QUESTION,)), {"session_id": "s"})
    pending = PendingApproval("h-1", "container", "restart", {"name": "web"}, "high")
    assert waits == OpsSession("s", 2, waits.messages, pending)
    with pytest.raises(Refused) as refused:
        await session(Stored((), ()), {"session_id": "s"})
    assert (refused.value.status, refused.value.code) == (404, "unknown_session")
