"""What clients of the five flows see: frames, endings, and what is refused."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.errors import GrammarViolated
from cutover.flow import Event
from cutover.flow_spec import FlowSpec, Framer, GrammarCheck, wire
from rules.flows import CHAT, COMPANION, FLOWS, OPS, PIPELINE, SESSION
from rules.flows import chat as c
from rules.flows import companion as k
from rules.flows import ops as o
from rules.flows import pipeline as p
from rules.flows import session as s
from rules.forms import HumanAnswer

FRAMES = [
    (FLOWS[name], frame)
    for name, _, frame in (
        one.removeprefix("# ").partition("\n")
        for one in Path(__file__).with_name("frames.txt").read_text("utf-8").strip().split("\n\n")
    )
]
"""A frame of every event, exactly as the flow's document shows it."""


def event_of(flow: FlowSpec, frame: str) -> Event:
    """Return the event that a frame holds."""
    head, _, data = frame.partition("data: ")
    tag = {"event": head.removeprefix("event: ").strip()} if head else {}
    return msgspec.convert(msgspec.json.decode(data) | tag, flow.events)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("flow", "frame"), FRAMES)
def test_event_is_the_documented_frame(flow: FlowSpec, frame: str) -> None:
    """Every event is encoded byte for byte as its clients know it."""
    assert wire(event_of(flow, frame), named=flow.named) == f"{frame}\n\n".encode()


def test_every_event_has_a_documented_frame() -> None:
    """No event is missing in the table above."""
    shown = {(flow.name, type(event_of(flow, frame))) for flow, frame in FRAMES}
    assert shown == {(flow.name, one) for flow in FLOWS.values() for one in flow.events.__args__}


@given(data=st.data())
@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_failure_ends_any_stream_by_its_grammar(flow: FlowSpec, data: st.DataObject) -> None:
    """After any prefix of any stream the failure events make it whole."""
    check, last = GrammarCheck(flow.grammar), None
    for _ in range(data.draw(st.integers(0, 8))):
        if not check.expected:
            break
        last = data.draw(st.sampled_from(check.expected))
        check.event(last)
    for event in flow.failure(flow.options(), "x", last):
        check.event(str(event.__struct_config__.tag))
    assert check.complete


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_texts_and_pieces_name_events_and_fields(flow: FlowSpec) -> None:
    """What is declared about texts fits the events; every event is in the grammar."""
    events = {event.__struct_config__.tag: event for event in flow.events.__args__}
    assert events.keys() == {name for step in flow.grammar.steps for name in step.names}
    assert flow.texts.keys() | flow.pieces <= events.keys()
    for name, fields in flow.texts.items():
        assert {path.split(".")[0] for path in fields} <= set(events[name].__struct_fields__)


def _streams() -> Iterator[tuple[FlowSpec, list[Event]]]:
    token_info = p.TokenInfo(0, 8_000, "continue")
    rest: Any = {"token_info": token_info, "end_intent": False, "memories": (), "errors": ()}
    whole = p.PipelineMessage(success=True, message="ab", **rest)
    final = s.SessionAnswer(s.FinalMessage(id="i", content="ab"), s.Usage())
    yield CHAT, [c.ChatSend("a"), c.ChatSend("ab"), c.ChatSuccess("ab")]
    yield COMPANION, [k.CompanionText("a"), k.CompanionText("b")]
    yield SESSION, [s.SessionText({"content": "a"}), s.SessionText({"content": "b"})]
    yield SESSION, [s.SessionText({"content": "ab"}), s.SessionDone(final)]
    yield PIPELINE, [p.PipelineToken("a"), p.PipelineToken("b"), whole]
    yield PIPELINE, [p.PipelineToken("ab"), *PIPELINE.failure(p.PipelineOptions(), "x", "token")]
    yield OPS, [o.OpsFinal("ab")]


@pytest.mark.parametrize(("flow", "events"), list(_streams()))
def test_texts_join_to_what_was_said(flow: FlowSpec, events: list[Event]) -> None:
    """Deltas and totals of a stream join to the same text."""
    framer = Framer(flow)
    for event in events:
        framer.frame(event)
    assert framer.texts == {"text": "ab"}


def test_success_that_lacks_what_was_sent_is_refused() -> None:
    """A total that forgets earlier text violates the grammar."""
    framer = Framer(CHAT)
    framer.frame(c.ChatSend("ab"))
    with pytest.raises(GrammarViolated):
        framer.frame(c.ChatSuccess(""))


REQUESTS = json.loads(Path(__file__).with_name("requests.json").read_text("utf-8"))
"""Types of requests and options, each with a body."""
TYPES = {**vars(c), **vars(k), **vars(o), **vars(p), **vars(s)}
LONGEST = "x" * 65_536


@pytest.mark.parametrize(
    ("name", "body"), [*REQUESTS["good"], ("SessionRequest", {"message": LONGEST})]
)
def test_good_request_is_read(name: str, body: dict[str, Any]) -> None:
    """Requests within the bounds are read, unknown keys ignored."""
    msgspec.json.decode(msgspec.json.encode(body), type=TYPES[name])


@pytest.mark.parametrize(
    ("name", "body"),
    [*REQUESTS["bad"], ("ChatRequest", {"message_id": "m", "content": f"{LONGEST}x"})],
)
def test_bad_input_is_refused(name: str, body: dict[str, Any]) -> None:
    """Wrong types, empty, too long and unknown values are refused, before anything is sent."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=TYPES[name])


def test_image_over_the_limit_is_refused() -> None:
    """An image may have 8 MiB and no byte more."""
    whole = b"\x89PNG\r\n\x1a\n" + bytes(k.LARGEST_IMAGE - 8)
    url = "data:image/png;base64," + base64.b64encode(whole).decode()
    assert len(url) < k.LARGEST_IMAGE_BODY
    k.check_image(url)
    with pytest.raises(ValueError, match="8 MiB"):
        k.check_image("data:image/png;base64," + base64.b64encode(whole + b"x").decode())


def test_request_overrides_the_model_options() -> None:
    """A request's settings win over the options, and only those it has."""
    body = c.ChatRequest(message_id="m", model_config=c.ModelConfig(temperature=0.0, max_tokens=5))
    chosen = c.chosen(body, c.ChatOptions(model_id="x"))
    assert (chosen.model_id, chosen.temperature, chosen.max_tokens) == ("x", 0.0, 5)
    assert chosen.enable_tools


def test_answers_come_with_their_question() -> None:
    """A resume request names its question, and in ops it carries the answer."""
    assert COMPANION.pausing
    assert OPS.pausing
    assert OPS.pausing.answer_of
    assert COMPANION.pausing.question_of(k.ContinueRequest("h")) == "h"
    body = o.ResumeRequest(approved=False, by="ann", session_id="s")
    assert (OPS.pausing.question_of(body), OPS.key(body)) == ("", "s")
    assert OPS.pausing.answer_of(body) == HumanAnswer("reject", by="ann")
    rejection = k.RespondRequest(hitl_id="h", action="reject", data={"a": 1})
    assert k.human_answer(rejection) == HumanAnswer("reject")


@pytest.mark.parametrize(
    ("flow", "default"),
    [(CHAT, "m"), (COMPANION, "s"), (SESSION, "s"), (PIPELINE, "s"), (OPS, "s")],
)
def test_requests_are_routed_by_message_in_chat_and_session_elsewhere(
    flow: FlowSpec, default: str
) -> None:
    """The default route key is the message's id in chat, the session's in the other flows."""
    assert flow.key({"message_id": "m", "session_id": "s", "user_id": "u"}) == default
