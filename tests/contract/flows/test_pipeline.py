"""The pipeline's wire: its exact bytes, its two ends, its options."""

from __future__ import annotations

import msgspec
import pytest

from contract.flows.pipeline import (
    PIPELINE,
    WHOLE_RUN,
    NodeFailure,
    PipelineEvent,
    PipelineFailed,
    PipelineMessage,
    PipelineOptions,
    PipelineRequest,
    PipelineToken,
    TokenInfo,
)
from contract.grammar import GrammarCheck
from contract.wire import WireReader

DONE = PipelineMessage(
    success=True,
    message='好"',
    token_info=TokenInfo(70, 100, "warn"),
    end_intent=True,
    memories=("a", "b"),
    errors=(NodeFailure("memory_check", "model_error"),),
)
FAILED = PipelineFailed(
    success=False,
    message="",
    token_info=TokenInfo(1, 100, "continue", estimated=True),
    end_intent=False,
    memories=(),
    errors=(NodeFailure("response_generator", "model_truncated"),),
)
EVENTS: list[tuple[PipelineEvent, str]] = [
    (PipelineToken('好"\n'), 'event: token\ndata: {"content":"好\\"\\n"}\n\n'),
    (
        DONE,
        (
            'event: message\ndata: {"success":true,"message":"好\\"","token_info":{"used":70,'
            '"limit":100,"action":"warn"},"end_intent":true,"memories":["a","b"],'
            '"errors":[{"node":"memory_check","code":"model_error"}]}\n\n'
        ),
    ),
    (
        FAILED,
        (
            'event: message\ndata: {"success":false,"message":"","token_info":{"used":1,'
            '"limit":100,"action":"continue","estimated":true},"end_intent":false,"memories":[],'
            '"errors":[{"node":"response_generator","code":"model_truncated"}]}\n\n'
        ),
    ),
]


@pytest.mark.parametrize(("event", "frame"), EVENTS)
def test_an_event_has_exactly_these_bytes(event: PipelineEvent, frame: str) -> None:
    """They read back as the same event, by the name it has here."""
    assert PIPELINE.encode(event).decode() == frame
    (read,) = WireReader(PIPELINE.decoder).feed(frame.encode())
    assert read.name == PIPELINE.name_of(event)
    assert msgspec.json.decode(read.data, type=type(event)) == event
    assert read.ends is not isinstance(event, PipelineToken)
    assert read.failure == ("model_truncated" if event is FAILED else None)
    assert read.text() == PIPELINE.text_of(event)


@pytest.mark.parametrize("last", [None, *(event for event, _ in EVENTS)])
def test_any_stream_can_be_ended_with_an_honest_failure(last: PipelineEvent | None) -> None:
    """The grammar holds, and a stream that is over stays as it is."""
    check = GrammarCheck(PIPELINE.grammar)
    ending = PIPELINE.failure(PipelineOptions(token_limit=9), "crash", last)
    for event in ([last] if last else []) + list(ending):
        check.event(PIPELINE.name_of(event))
    assert check.complete
    if isinstance(last, PipelineMessage):
        assert ending == ()
        return
    (failed,) = ending
    assert isinstance(failed, PipelineFailed)
    assert (failed.success, failed.token_info.limit) == (False, 9)
    assert failed.errors == (NodeFailure(WHOLE_RUN, "crash"),)


BODY = {"user_id": "u", "message": "hi", "session_id": "s"}


@pytest.mark.parametrize(
    "wrong",
    [
        *({key: value for key, value in BODY.items() if key != name} for name in BODY),
        *({**BODY, name: ""} for name in BODY),
        {**BODY, "message": " \n"},
        {**BODY, "message": "x" * 65_537},
        {**BODY, "user_name": "a\nb"},
        {**BODY, "interlocutor": {"name": "Ana"}},
        {**BODY, "interlocutor": {"name": "Ana", "relation": ""}},
    ],
)
def test_a_bad_request_is_refused(wrong: dict[str, object]) -> None:
    """What is missing, empty, blank, too long or of another shape."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, PipelineRequest)


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "x"},
        {"texts": {"continue": "x"}},
        {"token_limit": 0},
        {"warn_percent": 0},
        {"end_percent": 101},
        {"warn_percent": 86},
        {"compress_percent": 96},
    ],
)
def test_options_that_cannot_hold_are_refused(wrong: dict[str, object]) -> None:
    """Misspelt, out of bounds, or shares that fall."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, PipelineOptions)
