"""Dialects that are proposed for undeclared streams: what each says, and what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.flows import SPECS
from contract.wire import Framing, TextPaths, dialect_in
from cutover.first_configuration import dialect_table
from cutover.recognition import NoStream, Recognised, recognise
from cutover.recognition.proposal import propose
from tests.support.recorded_answers import TEXT, WORDS, answer_of
from tests.support.recorded_bodies import line, sse

UUID = "8f14e45f-ceea-467f-a9d5-0123456789ab"
SENT = {"question": "Which plan includes exports?", "session": "s1"}


@dataclass(frozen=True)
class Format:
    """A format, told with pieces of a text; and what is to be found in it."""

    told: Callable[[list[str]], bytes]
    text: dict[str, Any]
    terminal: tuple[str, ...] = ()
    framing: Framing = "sse"
    names: str | None = None
    growth: str = "delta"
    ignore: dict[str, set[str]] = field(default_factory=dict)
    reasoning: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    kind: bytes | None = None


def whole(path: str) -> TextPaths:
    """Return a path at which the whole text stands."""
    return TextPaths(path=path, growth="cumulative")


def grown(words: list[str]) -> list[str]:
    """Return a text as a cumulative stream sends it."""
    return ["".join(words[: at + 1]) for at in range(len(words))]


def helpdesk(words: list[str]) -> bytes:
    """Name events by their lines."""
    return b"".join(
        [
            sse({"trace_id": "a1"}, "begin"),
            *(sse({"delta": {"text": word}}, "token") for word in words),
            sse({"url": "/manual"}, "source"),
            sse({"took_ms": 812}, "end"),
        ]
    )


def typed(words: list[str]) -> bytes:
    """Name events in their payloads, and number them."""
    pieces = [sse({"type": "delta", "content": w, "seq": n}) for n, w in enumerate(words)]
    return b"".join([*pieces, sse({"type": "end", "tokens": 12})])


def words_and_done(words: list[str]) -> bytes:
    """Name nothing, and end with a payload that is no JSON."""
    return b"".join([*(sse({"token": word}) for word in words), b"data: [DONE]\n\n"])


def status(words: list[str]) -> bytes:
    """Send all of the text so far, and a status."""
    pieces = [sse({"status": "answering", "answer": text}) for text in grown(words)]
    done = sse({"status": "done", "answer": "".join(words)})
    return b"".join([sse({"status": "thinking", "answer": ""}), *pieces, done])


def flagged(words: list[str]) -> bytes:
    """Mark the last line."""
    lines = [line({"content": word, "finished": False}) for word in words]
    return b"".join([*lines, line({"content": "", "finished": True, "tokens": 12})])


def flagged_at_the_end(words: list[str]) -> bytes:
    """Say nothing of the end before it comes."""
    return b"".join([*(line({"text": word}) for word in words), line({"done": True})])


def kinds(words: list[str]) -> bytes:
    """End with an event that may or may not come every time."""
    lines = [line({"kind": "piece", "text": word}) for word in words]
    return b"".join([*lines, line({"kind": "usage", "prompt": 3, "reply": 12})])


def plain_payloads(words: list[str]) -> bytes:
    """Send the text itself, and an event that is named."""
    pieces = [b"data: " + word.encode() + b"\n\n" for word in words]
    return b"".join([*pieces, b"event: done\ndata: \n\n"])


def plain_payloads_and_end(words: list[str]) -> bytes:
    """Send the text itself, and a word that is none of it."""
    pieces = [b"data: " + word.encode() + b"\n\n" for word in words]
    return b"".join([*pieces, b"data: [END]\n\n"])


def langserve(words: list[str]) -> bytes:
    """Stream what happens in a chain, each in the same `event:` line."""

    def happened(event: str, name: str, **data: object) -> bytes:
        return sse({"event": event, "name": name, "run_id": UUID, "data": data}, "data")

    def chunk(word: str) -> dict[str, str]:
        return {"content": word, "type": "AIMessageChunk"}

    return b"".join(
        [
            happened("on_chain_start", "agent", input=SENT["question"]),
            *(happened("on_chat_model_stream", "ChatOpenAI", chunk=chunk(w)) for w in words),
            happened("on_chain_end", "agent", output="".join(words)),
            b"event: end\ndata: {}\n\n",
        ]
    )


def final(words: list[str]) -> bytes:
    """Repeat the whole text in the last event."""
    pieces = [sse({"type": "token", "content": word}) for word in words]
    return b"".join([*pieces, sse({"type": "final", "answer": "".join(words), "id": UUID})])


def at_once(words: list[str]) -> bytes:
    """Send the whole text in one event."""
    return sse({"message": "ok"}, "start") + sse({"answer": "".join(words)}, "result")


def reasoning(words: list[str]) -> bytes:
    """Think first; say in a field why it ended."""
    thoughts = [sse({"thinking": word}) for word in ("Let ", "me ", "see.")]
    pieces = [sse({"text": word, "ts": 1_700_000_000 + n}) for n, word in enumerate(words)]
    return b"".join([*thoughts, *pieces, sse({"text": "", "finish_reason": "stop", "ts": 1.5})])


def gemini(words: list[str]) -> bytes:
    """Stream as Gemini's API does."""

    def chunk(word: str, **more: object) -> bytes:
        content = {"parts": [{"text": word}], "role": "model"}
        candidates = [{"content": content, "index": 0, **more}]
        return sse({"candidates": candidates, "modelVersion": "g", "responseId": "aB3dE5fG7hI9j"})

    return b"".join([*map(chunk, words[:-1]), chunk(words[-1], finishReason="STOP")])


def responses(words: list[str]) -> bytes:
    """Stream as the OpenAI API's responses do."""
    said, item = "".join(words), "msg_0123456789abcdef"

    def event(name: str, number: int, **more: object) -> bytes:
        return sse({"type": name, "sequence_number": number, **more}, name)

    content = [{"type": "output_text", "text": said}]
    output = [{"type": "message", "id": item, "content": content}]
    deltas = [
        event("response.output_text.delta", n + 2, item_id=item, output_index=0, delta=word)
        for n, word in enumerate(words)
    ]
    return b"".join(
        [
            event("response.created", 0, response={"id": "resp_0123456789abcd", "output": []}),
            event("response.output_item.added", 1, item={"id": item, "content": []}),
            *deltas,
            event("response.output_text.done", 90, item_id=item, text=said),
            event("response.completed", 91, response={"output": output}),
        ]
    )


def steps(words: list[str]) -> bytes:
    """Grow letter by letter; end with an event that says nothing but its name."""
    text = "".join(words)
    letters = [sse({"step": "GROW", "content": text[: at + 1]}) for at in range(len(text))]
    ends = [sse({"step": "OK", "content": text}), sse({"step": "BYE"})]
    return b"".join([sse({"step": "BEGIN"}), *letters, *ends])


def assistant(words: list[str]) -> bytes:
    """Call a tool between two texts."""
    middle = len(words) // 2
    pieces = [sse({"text": word}, "token") for word in words]
    called = sse({"tool": "calculate"}, "tool")
    return b"".join([*pieces[:middle], called, *pieces[middle:], sse({}, "done")])


FORMATS = {
    "helpdesk": Format(
        helpdesk,
        {"token": "delta.text"},
        ("end",),
        ignore={"begin": {"trace_id"}, "end": {"took_ms"}},
    ),
    "typed": Format(typed, {"delta": "content"}, ("end",), names="type", ignore={"delta": {"seq"}}),
    "words and [DONE]": Format(words_and_done, {"message": "token"}, ("[DONE]",)),
    "status": Format(
        status,
        {"answering": "answer", "done": "answer"},
        ("done",),
        names="status",
        growth="cumulative",
    ),
    "flagged": Format(flagged, {"*": "content"}, ("done",), "ndjson", names="finished"),
    "flagged at the end": Format(
        flagged_at_the_end, {"*": "text"}, ("done",), "ndjson", names="done"
    ),
    "kinds": Format(
        kinds,
        {"piece": "text"},
        framing="ndjson",
        names="kind",
        doubts=("'usage' came last: name it in terminal if every stream ends with it",),
        kind=b"application/json",
    ),
    "plain payloads": Format(
        plain_payloads,
        {"message": "data"},
        ("done",),
    ),
    "plain payloads and [END]": Format(plain_payloads_and_end, {}, ("[END]",)),
    "LangServe": Format(
        langserve,
        {"on_chat_model_stream": "data.chunk.content", "on_chain_end": whole("data.output")},
        ("end",),
        names="event",
        ignore={"*": {"run_id"}, "on_chat_model_stream": {"name", "data.chunk.type"}},
    ),
    "final": Format(
        final,
        {"token": "content", "final": whole("answer")},
        ("final",),
        names="type",
        ignore={"final": {"id"}},
    ),
    "at once": Format(
        at_once, {"result": "answer"}, doubts=("its text came in one piece: whether it grows",)
    ),
    "reasoning": Format(
        reasoning,
        {"message": "text"},
        ("finish",),
        ignore={"message": {"ts"}},
        reasoning={"message": "thinking"},
    ),
    "Gemini": Format(
        gemini,
        {"message": "candidates[*].content.parts[*].text"},
        ("finish",),
        ignore={
            "message": {
                *("candidates[*].content.role", "candidates[*].index"),
                *("modelVersion", "responseId"),
            }
        },
    ),
    "responses": Format(
        responses,
        {
            "response.output_text.delta": "delta",
            "response.output_text.done": whole("text"),
            "response.completed": whole("response.output[*].content[*].text"),
        },
        ("response.completed",),
    ),
    "steps": Format(
        steps, {"GROW": "content", "OK": "content"}, ("BYE",), names="step", growth="cumulative"
    ),
    "assistant": Format(assistant, {"token": "text"}, ("done",)),
}


def found_in(one: Format, words: list[str]) -> Recognised:
    """Recognise a format that no built-in dialect reads."""
    answer = answer_of(one.told(words), one.framing, kind=one.kind)
    found = recognise(answer, SPECS, SENT)
    assert isinstance(found, Recognised), found
    assert found.name == ""
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_names_text_and_end_of_an_unknown_format_are_found(name: str) -> None:
    """And what differs with every answer, so that it does not count; doubts are said."""
    one = FORMATS[name]
    found = found_in(one, WORDS)
    dialect = found.dialect
    assert (dialect.framing, dialect.event.path) == (one.framing, one.names)
    assert (dialect.text, dialect.growth) == (one.text, one.growth)
    assert dialect.terminal == one.terminal
    assert dialect.reasoning == one.reasoning
    if one.ignore:
        assert {key: set(paths) for key, paths in dialect.ignore.items()} == one.ignore
    for doubt in one.doubts:
        assert any(doubt in said for said in found.doubts), found.doubts
    assert any("no error event came" in said for said in found.doubts)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_proposed_reads_the_answer_it_was_made_of(name: str) -> None:
    """The whole text, to its end."""
    found = found_in(FORMATS[name], WORDS)
    assert found.reading.text == TEXT
    assert found.reading.sound()
    assert found.reading.terminal in {*found.dialect.terminal, ""}
    assert bool(found.reading.terminal) == bool(found.dialect.terminal)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_proposed_reads_other_answers_of_the_service(name: str) -> None:
    """Another text in other pieces; and says what a second look at the format would say."""
    one, words = FORMATS[name], ["Yes. ", "We ", "refund ", "within ", "30 days."]
    first = found_in(one, WORDS)
    other = answer_of(one.told(words), one.framing)
    again = propose(other, one.framing, SENT).dialect
    assert (again.text, again.terminal, again.event) == (
        first.dialect.text,
        first.dialect.terminal,
        first.dialect.event,
    )


def test_a_text_of_the_request_is_no_answer() -> None:
    """A service that repeats the question, at greater length than its answer."""
    question = "Which of your plans includes exports of everything we have ever stored with you?"
    body = sse({"content": question}, "question") + sse({"content": "Team."}, "answer")
    found = recognise(answer_of(body), SPECS, {"messages": [{"content": question}]})
    assert isinstance(found, Recognised)
    assert found.reading.text == "Team."


def test_what_varies_beside_the_text_is_said_to_count() -> None:
    """Whether the node that said a word matters is unknown."""
    nodes = ["plan", "write", "check"]
    body = b"".join(
        sse({"type": "token", "text": word, "by": nodes[n % 3]}) for n, word in enumerate(WORDS)
    )
    found = recognise(answer_of(body + sse({"type": "done"})), SPECS)
    assert isinstance(found, Recognised)
    assert "by" not in found.dialect.ignore.get("token", ())
    assert any(doubt.startswith("by stands beside pieces of the text") for doubt in found.doubts)


def test_a_stream_without_text_is_said_to_have_none() -> None:
    """It can be served and mirrored; nothing could take it over."""
    body = b"".join([sse({"n": 1}, "tick"), sse({"n": 2}, "tick"), sse({}, "done")])
    found = recognise(answer_of(body), SPECS)
    assert isinstance(found, Recognised)
    assert not found.dialect.locates_text
    assert any("no text was found" in doubt for doubt in found.doubts)


def test_an_end_that_was_not_seen_is_not_guessed() -> None:
    """Of an answer that broke off, or went on beyond the limit."""
    for end, why in (("lost", "broke off"), ("unended", "had not ended")):
        cut = typed(WORDS).partition(b'data: {"type":"end"')[0]
        found = recognise(answer_of(cut, end=end), SPECS)  # type: ignore[arg-type]
        assert isinstance(found, Recognised)
        assert found.dialect.terminal == ()
        assert any(f"the answer {why}" in doubt for doubt in found.doubts)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.text(max_size=8),
    lambda held: (
        st.lists(held, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "content", "id", "a.b", "", "done", "x"]), held)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.sampled_from(["", "token", "error", "a b"]), JSON), max_size=6))
def test_whatever_comes_something_is_said_of_it(events: list[tuple[str, Any]]) -> None:
    """A dialect that a configuration takes, or why there is none; never an exception."""
    for framing, told in (("sse", sse), ("ndjson", lambda value, _: line(value))):
        body = b"".join(told(value, name) for name, value in events)
        found = recognise(answer_of(body, framing), SPECS, SENT)
        if isinstance(found, NoStream):
            assert found.advice
            continue
        again = dialect_in(dialect_table(found.dialect), "drawn", "")
        assert replace(again, name="") == replace(found.dialect, name="")
