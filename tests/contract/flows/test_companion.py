"""The companion's wire: its exact bytes, its endings, its options."""

from __future__ import annotations

import msgspec
import pytest

from contract.errors import GrammarViolated
from contract.flows.companion import (
    COMPANION,
    CompanionDone,
    CompanionError,
    CompanionEvent,
    CompanionOptions,
    CompanionText,
    Emotion,
    Hitl,
    RespondRequest,
    ToolOutput,
)
from contract.grammar import GrammarCheck
from contract.human import Form, FormField, FormValue, HumanAnswer
from contract.wire.sse import SseDecoder

FORM = Form("t", (FormField("a", "A", "text", required=False, value="x"),))
EVENTS: list[tuple[CompanionEvent, str]] = [
    (
        Emotion("joy", 0.8, 0.67),
        'event: emotion\ndata: {"primary":"joy","intensity":0.8,"confidence":0.67}\n\n',
    ),
    (CompanionText('好"\n'), 'event: text\ndata: {"content":"好\\"\\n"}\n\n'),
    (
        ToolOutput("dice", ok=True, content="4"),
        'event: tool_result\ndata: {"tool":"dice","ok":true,"content":"4"}\n\n',
    ),
    (
        Hitl("h", "s", "question", FORM),
        (
            'event: hitl\ndata: {"hitl_id":"h","session_id":"s","kind":"question",'
            '"form":{"title":"t","fields":[{"name":"a","label":"A","type":"text","required":false,"value":"x"}]}}\n\n'
        ),
    ),
    (CompanionError("model_error"), 'event: error\ndata: {"code":"model_error"}\n\n'),
    (CompanionDone("suspended"), 'event: done\ndata: {"status":"suspended"}\n\n'),
]


@pytest.mark.parametrize(("event", "frame"), EVENTS)
def test_an_event_has_exactly_these_bytes(event: CompanionEvent, frame: str) -> None:
    """Its name beside the data; and they read back as the same event."""
    assert COMPANION.encode(event).decode() == frame
    (read,) = SseDecoder().feed(frame.encode())
    assert read.event == COMPANION.name_of(event)
    assert msgspec.json.decode(read.data, type=type(event)) == event


@pytest.mark.parametrize("last", [None, *(event for event, _ in EVENTS)])
def test_any_stream_can_be_ended_with_an_honest_failure(last: CompanionEvent | None) -> None:
    """The grammar holds, and a stream that is over stays as it is."""
    check = GrammarCheck(COMPANION.grammar)
    events = ([last] if last else []) + list(COMPANION.failure(CompanionOptions(), "crash", last))
    for event in events:
        check.event(COMPANION.name_of(event))
    assert check.complete
    if not isinstance(last, CompanionDone):
        assert events[-1] == CompanionDone("failed")


def test_a_pause_ends_the_stream() -> None:
    """With `suspended`, once."""
    options = CompanionOptions()
    assert COMPANION.pausing is not None
    suspended = COMPANION.pausing.suspended
    assert suspended(options, CompanionText("x")) == (CompanionDone("suspended"),)
    assert suspended(options, CompanionDone("completed")) == ()


@pytest.mark.parametrize(
    "names", ["text emotion", "emotion emotion", "done text", "error text", "error error"]
)
def test_what_may_not_follow(names: str) -> None:
    """Emotion comes first and once, nothing but the end follows an error."""
    first, second = names.split()
    check = GrammarCheck(COMPANION.grammar)
    check.event(first)
    with pytest.raises(GrammarViolated):
        check.event(second)


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "x"},
        {"texts": {"hello": "x"}},
        {"timezone": "Mars/Olympus"},
        {"least_confidence": 2},
        {"temperature": -1},
    ],
)
def test_options_that_cannot_hold_are_refused(wrong: dict[str, object]) -> None:
    """Misspelt, unknown or out of bounds."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, CompanionOptions)


def test_an_answer_is_read_with_its_data_or_without() -> None:
    """Lists become tuples, as forms have them; what comes with a rejection says nothing."""
    assert COMPANION.pausing is not None
    responding = COMPANION.pausing.respond
    assert responding is not None
    body = b'{"hitl_id":"h","action":"edit","data":{"a":["x"],"b":1}}'
    given = msgspec.json.decode(body, type=RespondRequest)
    assert responding.hitl_id(given) == "h"
    assert responding.answer(given) == HumanAnswer("edit", {"a": ("x",), "b": 1})
    beside: tuple[dict[str, FormValue] | None, ...] = (None, {"a": 10**400})
    for data in beside:
        rejected = RespondRequest(hitl_id="h", action="reject", data=data)
        assert responding.answer(rejected) == HumanAnswer("reject")
