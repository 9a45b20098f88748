"""The built-in dialects: one story told on each wire, and told otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from compare.streams.events import NAME, REASONING, TEXT
from contract.flows import SPECS
from tests.support.recorded_bodies import (
    ARGUMENTS,
    DIALECTS,
    PIECES,
    THOUGHTS,
    TOLD,
    Story,
    causes,
    compared,
    dialect,
    line,
    sse,
)

STORY = Story()
BODY_IS_END = ("langgraph", "text")
"""No event ends their streams, but the end of the body does."""
ENDED = [name for name in DIALECTS if name not in BODY_IS_END]
WITH_CALLS = [name for name in DIALECTS if name not in {*SPECS, "text"}]


def told(name: str, story: Story = STORY) -> bytes:
    """Tell a story on a wire."""
    return TOLD[name](story)


def events(name: str, body: bytes) -> list[dict[str, object]]:
    """Give the events of a body in normal form."""
    stream = dialect(name).normaliser.stream(body)
    return [msgspec.json.decode(frame) for _, frame in stream.frames]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_story_is_equal_to_itself_told_again(tmp_path: Path, name: str) -> None:
    """Other ids, other times: no finding."""
    tally = compared(tmp_path, dialect(name), told(name), told(name, replace(STORY, number=7)))
    assert (tally.pairs, tally.equal, causes(tally)) == (1, 1, [])


@pytest.mark.parametrize("name", WITH_CALLS)
def test_texts_and_calls_are_found_where_the_dialect_says(name: str) -> None:
    """Whatever the wire, the same words and the same call."""
    read = events(name, told(name))
    assert "".join(str(event.get(TEXT, "")) for event in read) == "".join(PIECES)
    assert "".join(str(event.get(REASONING, "")) for event in read) == "".join(THOUGHTS)
    [call] = [event for event in read if event[NAME] == "tool_call"]
    assert (call["name"], call["arguments"]) == ("get_weather", msgspec.json.decode(ARGUMENTS))
    assert dialect(name).normaliser.stream(told(name)).outcome == "completed"


OTHERWISE = {
    "word": (
        replace(STORY, pieces=(PIECES[0], "北京雨，", *PIECES[2:])),
        "text",
        "text_changed",
        "final",
    ),
    "thought": (
        replace(STORY, thoughts=("Look ", "inside.")),
        "text",
        "reasoning_changed",
        "reasoning",
    ),
    "argument": (
        replace(STORY, arguments=('{"city":"上', '海","days":2}')),
        "frames",
        "frame_changed",
        ".tool_call.arguments.city",
    ),
}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (name, what)
        for name in DIALECTS
        for what in OTHERWISE
        if what == "word" or name in WITH_CALLS
    ],
)
def test_what_is_told_otherwise_is_found_once_with_its_path(
    tmp_path: Path, name: str, what: str
) -> None:
    """A word among as many pieces, a thought, an argument whose pieces are one value."""
    other, *due, place = OTHERWISE[what]
    if name == "ndjson":
        other = replace(other, arguments=("".join(other.arguments),))
    tally = compared(tmp_path, dialect(name), told(name), told(name, other))
    [(layer, kind, path)] = causes(tally)
    assert [layer, kind] == due
    assert path.endswith(place)


def without_last(name: str, count: int) -> bytes:
    """Tell the story without its last frames."""
    mark = b"\n" if name == "ndjson" else b"\n\n"
    assert mark in told(name)
    return mark.join(told(name).split(mark)[: -1 - count]) + mark


@pytest.mark.parametrize("name", ENDED)
def test_a_stream_without_its_end_is_an_outcome(tmp_path: Path, name: str) -> None:
    """Cut before the terminal event; what lacks follows from it."""
    cut = without_last(name, 1)
    found = causes(compared(tmp_path, dialect(name), told(name), cut))
    assert found == [("outcome", "outcome_changed", "→truncated")]


@pytest.mark.parametrize("name", BODY_IS_END)
def test_where_the_body_is_the_end_an_empty_one_is_none(tmp_path: Path, name: str) -> None:
    """On one side it is an outcome, and two of them are no pass."""
    found = causes(compared(tmp_path, dialect(name), told(name), b""))
    assert found == [("outcome", "outcome_changed", "→truncated")]
    found = causes(compared(tmp_path, dialect(name), b"", b""))
    assert found == [("grammar", "grammar_broken", "both.frames[0].end")]


@pytest.mark.parametrize("name", ENDED)
def test_two_streams_without_an_end_are_one_breach(tmp_path: Path, name: str) -> None:
    """Equal or not, empty or not: none of them is what a client waits for."""
    cut, shorter = without_last(name, 1), without_last(name, 2)
    for legacy, graph in ((cut, cut), (cut, shorter), (shorter, cut), (b"", b"")):
        [(layer, kind, path)] = causes(compared(tmp_path, dialect(name), legacy, graph))
        assert (layer, kind) == ("grammar", "grammar_broken")
        assert path.startswith("both.frames[")
        assert path.endswith(".end")


@pytest.mark.parametrize("name", ENDED)
def test_an_end_twice_is_a_breach_of_the_grammar(tmp_path: Path, name: str) -> None:
    """Nothing may follow the terminal event, declared grammar or not."""
    body = told(name)
    twice = body + body.removeprefix(without_last(name, 1))
    [(layer, kind, path)] = causes(compared(tmp_path, dialect(name), body, twice))
    assert (layer, kind) == ("grammar", "grammar_broken")
    assert path.startswith("graph.frames[")
    both = causes(compared(tmp_path, dialect(name), twice, twice))
    assert [cause[2].split(".")[0] for cause in both] == ["both"]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for name in DIALECTS
        for how in ("cut", "cut in a character", "no UTF-8")
        if (name, how) != ("text", "cut")  # any text is one
    ],
)
def test_an_illegible_piece_is_one_breach_of_the_grammar(
    tmp_path: Path, name: str, how: str
) -> None:
    """Its text is missing after it; a wire that repeats the whole at its end shows that as well."""
    body = told(name)
    at = body.index("带一".encode())
    end = body.index("。".encode() if name == "text" else b"\n", at)
    spoil = {
        "cut": body[: at + 3] + body[end:],
        "cut in a character": body[: at + 2] + body[end:],
        "no UTF-8": body[: at + 1] + body[at + 2 :],
    }
    [(layer, kind, path), *more] = causes(compared(tmp_path, dialect(name), body, spoil[how]))
    assert (layer, kind) == ("grammar", "grammar_broken")
    assert path.startswith("graph.")
    assert [cause[1] for cause in more] == (["text_shrank"] if name in WHOLE_AT_END else [])


WHOLE_AT_END = ("pipeline", "session")
FAILURES = {
    "openai": (sse({"error": {"message": "no", "code": "overloaded"}}), "overloaded"),
    "anthropic-messages": (
        sse({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, "error"),
        "overloaded_error",
    ),
    "ndjson": (line({"error": "model gone"}), ""),
    "ai-sdk": (sse({"type": "error", "errorText": "no"}) + b"data: [DONE]\n\n", ""),
    "langgraph": (sse({"error": "APIError", "message": "no"}, "error"), "APIError"),
    "chat": (b'data: {"step":"FAILED","code":"model_error"}\n\n', "model_error"),
    "companion": (
        sse({"code": "model_error"}, "error") + sse({"status": "failed"}, "done"),
        "model_error",
    ),
    "ops": (
        sse({"code": "model_error"}, "error") + sse({"status": "failed"}, "done"),
        "model_error",
    ),
    "pipeline": (
        sse(
            {
                "success": False,
                "message": "",
                "token_info": {"used": 4, "limit": 100, "action": "continue"},
                "end_intent": False,
                "memories": [],
                "errors": [{"node": "response_generator", "code": "model_error"}],
            },
            "message",
        ),
        "model_error",
    ),
    "session": (b'data: {"type":"error","data":{"code":"model_error"}}\n\n', "model_error"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_in_the_stream_is_an_outcome_with_its_code(tmp_path: Path, name: str) -> None:
    """Each wire says it in its own way."""
    failure, code = FAILURES[name]
    body = told(name)
    broken = body[: body.index("带一".encode())].rpartition(b"\n")[0].rstrip(b"\n")
    broken += (b"\n" if name == "ndjson" else b"\n\n") + failure
    stream = dialect(name).normaliser.stream(broken)
    assert stream.outcome == "failed"
    assert stream.error is not None
    assert stream.error.code == code
    found = causes(compared(tmp_path, dialect(name), body, broken))
    assert found == [("outcome", "outcome_changed", f"→failed.{code}".rstrip("."))]


def test_calls_of_several_indices_grow_side_by_side() -> None:
    """Interleaved pieces; some providers repeat the id, a new id is a new call."""

    def piece(index: int, **function: str) -> bytes:
        call = {"index": index, "id": f"t{index}", "function": function}
        return sse({"choices": [{"delta": {"tool_calls": [call]}}]})

    body = b"".join(
        [
            piece(0, name="a", arguments=""),
            piece(1, name="b", arguments='{"x"'),
            piece(0, arguments='{"y":1'),
            piece(1, arguments=":2}"),
            piece(0, arguments="}"),
            sse({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "new"}]}}]}),
        ]
    )
    read = [(event.get("name"), event.get("arguments")) for event in events("openai", body)]
    assert read == [("a", {"y": 1}), ("b", {"x": 2}), (None, None)]


def test_arguments_that_are_no_json_are_compared_as_text() -> None:
    """A model can write anything."""
    call = {"index": 0, "function": {"name": "a", "arguments": '{"x":'}}
    [event] = events("openai", sse({"choices": [{"delta": {"tool_calls": [call]}}]}))
    assert event["arguments"] == '{"x":'


def test_text_and_ending_may_share_a_chunk(tmp_path: Path) -> None:
    """Some providers send the last word, the finish reason and the usage in one."""

    def chunk(finish: str | None = None, **more: object) -> bytes:
        return sse(
            {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": finish}]} | more
        )

    usage = {"usage": {"total_tokens": 3}}
    done = b"data: [DONE]\n\n"
    together = chunk("stop", **usage) + done
    apart = chunk() + sse({"choices": [{"delta": {}, "finish_reason": "stop"}]}) + sse(usage) + done
    assert compared(tmp_path, dialect("openai"), together, apart).equal == 1


@pytest.mark.parametrize("side", ["legacy", "graph"])
@pytest.mark.parametrize("before", ["", "Well. "])
def test_a_refusal_told_as_text_is_a_cause_of_its_own(
    tmp_path: Path, side: str, before: str
) -> None:
    """Clients show the two apart, and no frame or text is missing beside."""

    def stream(name: str) -> bytes:
        pieces = [{"content": before}, {name: "I can't "}, {name: "help."}, {}]
        chunks = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
        return b"".join(map(sse, chunks)) + b"data: [DONE]\n\n"

    streams = [stream("refusal"), stream("content")]
    legacy, graph = streams if side == "graph" else reversed(streams)
    tally = compared(tmp_path, dialect("openai"), legacy, graph)
    assert causes(tally) == [("text", "refusal_as_text", "refusal")]
    assert compared(tmp_path, dialect("openai"), legacy, legacy).equal == 1


def test_a_refusal_that_is_missing_is_a_missing_frame(tmp_path: Path) -> None:
    """It was told nowhere."""
    done = b"data: [DONE]\n\n"
    refused = sse({"choices": [{"index": 0, "delta": {"refusal": "No."}}]}) + done
    [cause] = causes(compared(tmp_path, dialect("openai"), refused, done))
    assert cause == ("frames", "frame_dropped", "frames[0].refusal")


def test_a_comment_that_says_who_goes_on_lets_text_begin_anew(tmp_path: Path) -> None:
    """A declared takeover; undeclared, the text took back what it had shown."""
    body = told("chat")
    frames = body.split(b"\n\n")
    anew = b'data: {"step":"SEND","content":"x"}'
    frames[2:2] = [anew]
    silent = b"\n\n".join(frames)
    frames[3:3] = [b": served-by legacy abc"]
    declared = b"\n\n".join(frames)
    assert [kind for _, kind, _ in causes(compared(tmp_path, dialect("chat"), silent, silent))] == [
        "grammar_broken"
    ]
    assert causes(compared(tmp_path, dialect("chat"), declared, declared)) == []
