"""What is recognised in an answer: built-in dialects, and why an answer is no stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contract.flows import SPECS
from cutover.recognition import Answer, NoStream, Recognised, recognise
from tests.support.recorded_answers import TEXT, WORDS, answer_of, refusal
from tests.support.recorded_bodies import DIALECTS, PIECES, TOLD, Story, sse

FRAMINGS = {"ndjson": "ndjson", "text": "text"}


def recognised(answer: Answer) -> Recognised:
    """Recognise an answer that is a stream."""
    found = recognise(answer, SPECS)
    assert isinstance(found, Recognised), found
    return found


def refused(answer: Answer) -> NoStream:
    """Recognise an answer that is none."""
    found = recognise(answer, SPECS)
    assert isinstance(found, NoStream), found
    return found


@pytest.mark.parametrize("name", DIALECTS)
def test_every_built_in_dialect_is_recognised_by_reading(name: str) -> None:
    """With its whole text, and what ends it, where something does."""
    found = recognised(answer_of(TOLD[name](Story()), FRAMINGS.get(name, "sse")))
    assert found.name == name
    assert found.reading.text == "".join(PIECES)
    assert found.reading.terminal in {*found.dialect.terminal, ""}
    assert bool(found.reading.terminal) == bool(found.dialect.terminal)
    assert found.evidence[-1].startswith("ends with")


@pytest.mark.parametrize("name", DIALECTS)
def test_where_bytes_are_cut_does_not_matter(name: str) -> None:
    """Pieces of three bytes, which tear lines and characters."""
    body = TOLD[name](Story())
    pieces = tuple((at, body[at : at + 3]) for at in range(0, len(body), 3))
    whole = answer_of(body, FRAMINGS.get(name, "sse"))
    assert recognised(replace(whole, pieces=pieces)).name == name


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in {"langgraph", "text"}])
def test_a_stream_that_broke_off_is_recognised_and_said_to_have_broken_off(name: str) -> None:
    """Its end is not waited for."""
    whole = answer_of(TOLD[name](Story()), FRAMINGS.get(name, "sse"))
    found = recognised(replace(whole, pieces=whole.pieces[:-1], end="lost"))
    assert not found.reading.terminal
    assert "its connection broke before its end" in found.doubts


def test_a_built_in_dialect_without_its_end_keeps_the_rest_of_it() -> None:
    """Such a server is common; its stream ends with its body, and the doubt is said."""
    body = TOLD["openai"](Story()).removesuffix(b"data: [DONE]\n\n")
    found = recognised(answer_of(body))
    assert found.name == ""
    assert found.dialect.terminal == ()
    assert found.dialect.tools is not None
    assert all("[DONE]" not in str(frame) for frame in found.dialect.failure)
    assert found.evidence[0] == "reads as openai, without its end ([DONE])"
    assert any("its body does" in doubt for doubt in found.doubts)


def test_events_like_a_built_in_flows_are_that_flow_only_with_its_fields() -> None:
    """`text` and `done` are common names; the fields of the flow companion are its own."""
    words = b"".join(sse({"content": word, "node": "a"}, "text") for word in WORDS)
    found = recognised(answer_of(words + sse({"status": "completed"}, "done")))
    assert (found.name, found.reading.text) == ("", TEXT)
    own = b"".join(sse({"content": word}, "text") for word in WORDS)
    assert recognised(answer_of(own + sse({"status": "completed"}, "done"))).name == "companion"


def test_calls_of_tools_alone_are_an_answer() -> None:
    """A dialect may have found no text in it; that is said."""
    found = recognised(answer_of(TOLD["openai"](Story(pieces=(), thoughts=()))))
    assert found.name == "openai"
    assert "this answer has no text, only calls of tools" in found.doubts


@pytest.mark.parametrize(
    ("answer", "code", "what", "shown"),
    [
        (
            refusal(401, b"", (b"www-authenticate", b'Bearer realm="x"')),
            "credentials",
            "Bearer",
            "",
        ),
        (refusal(403, b'{"error":{"message":"no key"}}'), "credentials", "403", "no key"),
        (refusal(404, b'{"detail":"Not Found"}'), "path", "404", "Not Found"),
        (refusal(405, b"", (b"allow", b"GET")), "method", "only GET", ""),
        (
            refusal(422, b'{"detail":[{"loc":["body","q"],"msg":"Field required"}]}'),
            "body",
            "422",
            "body.q: Field required",
        ),
        (refusal(400, b"prompt missing"), "body", "400", "prompt missing"),
        (refusal(415), "body", "415", ""),
        (refusal(307, b"", (b"location", b"/api/?key=secret")), "redirect", "to /api/", ""),
        (refusal(429), "refused", "too many", ""),
        (refusal(418, b"teapot"), "refused", "418", "teapot"),
        (refusal(500, b"<html>"), "failed", "500", "<html>"),
        (refusal(204), "empty", "204", ""),
        (refusal(200), "empty", "no byte", ""),
        (refusal(200, b"\x1f\x8b", (b"content-encoding", b"gzip")), "compressed", "gzip", ""),
        (
            refusal(200, b"<!DOCTYPE html><title>Log in</title>", (b"content-type", b"text/html")),
            "html",
            "HTML",
            "Log in",
        ),
        (refusal(200, b" <html><body>x"), "html", "HTML", ""),
        (
            refusal(200, b'{"error":"no such model"}', (b"content-type", b"application/json")),
            "document",
            "one JSON document",
            "no such model",
        ),
        (refusal(200, b'[{"a":1},\n{"a":2}]'), "document", "one JSON document", ""),
    ],
)
def test_what_is_no_stream_is_named_with_what_to_do(
    answer: Answer, code: str, what: str, shown: str
) -> None:
    """Also what the service itself says; a query, which may hold a key, is not shown."""
    found = refused(answer)
    assert (found.code, what in found.what) == (code, True), found
    assert found.advice
    if shown:
        assert found.shown == shown
    assert "secret" not in f"{found}"


def test_a_failure_in_the_stream_is_no_answer_to_learn_from() -> None:
    """Of a format of its own: what it would end with on other days is not known."""
    found = refused(answer_of(sse({"x": 1}, "start") + sse({"code": "overloaded"}, "error")))
    assert (found.code, found.what) == ("failed", "a stream that reports a failure (overloaded)")
    openai = sse({"error": {"code": "quota"}}) + b"data: [DONE]\n\n"
    assert refused(answer_of(openai)).what.endswith("(quota)")


def test_plain_text_is_recognised_last_and_doubted_where_it_came_at_once() -> None:
    """A page of text is no stream; lines of the AI SDK's old protocol are no text."""
    found = recognised(answer_of(TEXT.encode(), "text"))
    assert (found.name, found.reading.text, found.media_type) == ("text", TEXT, "")
    once = recognised(Answer(200, (), ((5, TEXT.encode()),)))
    assert "it came in one piece: this may be no stream" in once.doubts
    old = b"".join(b'0:"%b"\n' % word.encode() for word in WORDS)
    doubts = recognised(answer_of(old, "text")).doubts
    assert any("older data stream protocol" in doubt for doubt in doubts)


def test_a_type_that_the_router_takes_for_no_stream_is_named() -> None:
    """The configuration has to name it."""
    body = TOLD["openai"](Story())
    assert (
        recognised(answer_of(body, kind=b"application/stream")).media_type == "application/stream"
    )
    assert recognised(answer_of(body, kind=b"Text/Event-Stream; charset=utf-8")).media_type == ""


def test_a_stream_that_does_not_end_is_recognised_by_what_came() -> None:
    """Within the limit; where its end had come it may go on."""
    body = TOLD["openai"](Story())
    assert not any("not ended" in it for it in recognised(answer_of(body, end="unended")).doubts)
    cut = body.partition(b"data: [DONE]")[0] + b'data: {"choi'
    found = recognised(answer_of(cut, end="unended"))
    assert found.name == "openai"
    assert any("it had not ended after" in doubt for doubt in found.doubts)


def test_all_at_once_after_a_while_is_said_to_be_buffered() -> None:
    """A proxy in between, or the service: users would see nothing grow."""
    whole = answer_of(TOLD["openai"](Story()))
    late = replace(
        whole, pieces=tuple((2_000_000 + at, p) for at, (_, p) in enumerate(whole.pieces))
    )
    assert any("may be buffering" in doubt for doubt in recognised(late).doubts)
    assert not any("may be buffering" in doubt for doubt in recognised(whole).doubts)
