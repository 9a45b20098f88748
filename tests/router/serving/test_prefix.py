"""The prefix: two streams of one text, cut anywhere, make one stream."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.chat import CHAT
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import Dialect
from router.serving.prefix import PrefixMismatch, TextFrames, TextPrefix
from tests.router.serving.speaking import DIALECTS, TOKENS, Speech, carried, heard, spoken

WIRES = sorted(DIALECTS)
TEXTS = st.text(alphabet='ab é\u4e2d\U0001f600"\\\n\r:', max_size=12)


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """Cut a text anywhere, also through a character that takes two code units."""
    units = text.encode("utf-16-le")
    most = len(units) // 2
    cuts = sorted(draw(st.lists(st.integers(0, most), max_size=5)))
    edges = [0, *cuts, most]
    return [units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(edges)]


@st.composite
def two_of_one(draw: st.DrawFn) -> tuple[Speech, Speech, str, str]:
    """Draw a text, its thoughts, and two speakers of it."""
    thoughts, text = draw(TEXTS), draw(TEXTS)
    first, other = (
        Speech(draw(pieces(thoughts)), draw(pieces(text)), mark) for mark in ("one", "other")
    )
    return first, other, thoughts, text


def gone_on(wire: str, had: list[bytes], frames: list[bytes]) -> list[bytes]:
    """Return what follows on what a client has had."""
    prefix = TextPrefix(TextFrames(DIALECTS[wire]), had)
    return [sent for frame in frames if (sent := prefix.feed(frame)) is not None]


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@given(drawn=two_of_one(), share=st.floats(0, 1))
def test_cut_anywhere_nothing_is_doubled_or_lost(
    wire: str, drawn: tuple[Speech, Speech, str, str], share: float
) -> None:
    """The client hears the whole text once, one prologue and one end."""
    first, other, thoughts, text = drawn
    whole = spoken(wire, first)
    had = whole[: round(share * (len(whole) - 1))]
    rest = gone_on(wire, had, spoken(wire, other))
    said = heard(wire, [*had, *rest])
    if wire in {"text", "plain"}:
        text, thoughts = (text if wire == "text" else carried(text)), ""
    assert (said.text, said.reasoning) == (text, thoughts)
    assert said.silent == heard(wire, whole).silent


@pytest.mark.parametrize("wire", WIRES)
@given(drawn=two_of_one(), share=st.floats(0, 1), at=st.integers(0, 11))
def test_another_text_is_never_mixed_in(
    wire: str, drawn: tuple[Speech, Speech, str, str], share: float, at: int
) -> None:
    """A character the client has had differs: it is told."""
    first, other, _, text = drawn
    whole = spoken(wire, first)
    had = whole[: round(share * (len(whole) - 1))]
    reached = heard(wire, had).text
    if at >= len(reached) or not text.startswith(reached):
        return
    changed = text[:at] + "X" + text[at + 1 :]
    frames = spoken(wire, Speech(other.thoughts, [changed], "other"))
    with pytest.raises(PrefixMismatch):
        gone_on(wire, had, frames)


def test_a_delta_that_straddles_is_cut_and_all_else_stays() -> None:
    """Its lines, its line ends, its other fields; data on several lines is put on one."""
    had = [b'event: token\ndata: {"text":"Hel"}\n\n']
    frame = b'id: 7\r\nevent: token\r\ndata: {"n":1.5,\r\ndata: "text":"Hello"}\r\nretry: 5\r\n\r\n'
    assert gone_on("tokens", had, [frame]) == [
        b'id: 7\r\nevent: token\r\ndata: {"n":1.5,"text":"lo"}\r\nretry: 5\r\n\r\n'
    ]


def test_half_a_character_goes_out_as_an_escape() -> None:
    """No encoding has it."""
    smile = "\U0001f600"
    had = [spoken("tokens", Speech([], ["\ud83d"], "a"))[3]]
    [cut] = gone_on("tokens", had, [b'event: token\ndata: {"text":"%b!"}\n\n' % smile.encode()])
    assert cut == b'event: token\ndata: {"text":"\\ude00!"}\n\n'


def test_cumulative_frames_of_what_was_said_are_skipped() -> None:
    """One that says more goes out as it is, and so does the one that ends the reply."""
    speech = Speech([], ["He", "llo"], "m")
    frames = spoken("chat", speech)
    assert gone_on("chat", frames[:3], frames) == frames[3:]
    assert gone_on("chat", frames[:4], frames) == frames[4:]
    assert gone_on("chat", frames[:5], frames) == frames[5:]
    coarse = spoken("chat", Speech([], ["Hello"], "m"))
    assert gone_on("chat", frames[:4], coarse) == frames[4:]


def test_what_a_tool_says_beside_the_same_text_is_new() -> None:
    """A frame that says something else is no repetition."""

    def send(status: str) -> bytes:
        told = {
            "step": "SEND",
            "content": "Hi",
            "tool_call_feedback": {"tool": "t", "status": status},
        }
        return f"data: {json.dumps(told)}\n\n".encode()

    had = [*spoken("chat", Speech([], ["Hi"], "m"))[:3], send("running")]
    assert gone_on("chat", had, [*had, send("done")]) == [send("done")]


def test_one_text_may_be_ahead_while_the_other_catches_up() -> None:
    """A cumulative frame is never sent with less than the client has of the other text."""
    had = [b'{"type":"say","text":"a","thought":"because"}\n']
    ahead = b'{"type":"say","text":"ab","thought":"be"}\n'
    assert gone_on("lines", had, [ahead]) == [b'{"type":"say","text":"ab","thought":"because"}\n']


def test_a_failure_of_the_successor_is_told_at_once() -> None:
    """Whatever it has said until then; and its end follows."""
    frames = spoken("tokens", Speech([], ["Hello"], "m"))
    failed = b'event: error\ndata: {"code":"x"}\n\n'
    rest = [failed, frames[-1]]
    assert gone_on("tokens", frames[:-1], [frames[0], *rest]) == rest


@pytest.mark.parametrize(
    ("had", "frames"),
    [
        pytest.param([b"event: error\ndata: {}\n\n"], [b": nothing\n\n"], id="failed"),
        pytest.param([b"event: done\ndata: {}\n\n"], [b": nothing\n\n"], id="over"),
        pytest.param(
            spoken("tokens", Speech([], ["Hello"], "m"))[:-1],
            [b'event: token\ndata: {"text":"Hel"}\n\n', b"event: done\ndata: {}\n\n"],
            id="ends before",
        ),
    ],
)
def test_nothing_follows_on(had: list[bytes], frames: list[bytes]) -> None:
    """What has failed or ended is over; a text that ends before the client's is another one."""
    with pytest.raises(PrefixMismatch):
        gone_on("tokens", had, frames)


def test_a_cumulative_text_that_was_taken_back_cannot_be_followed() -> None:
    """What the client has is unknown by then."""
    frames = spoken("chat", Speech([], ["a"], "m"))
    taken_back = b'data: {"step":"SEND","content":"b"}\n\n'
    with pytest.raises(PrefixMismatch):
        gone_on("chat", [*frames[:3], taken_back], frames)


def test_before_any_text_the_prologue_is_not_repeated() -> None:
    """Only what the client has not had of it goes out; no text is due to be the same."""
    frames = spoken("chat", Speech([], ["a"], "m"))
    prefix = TextPrefix(TextFrames(CHAT.dialect), frames[:1])
    assert not prefix.has_text
    assert [prefix.feed(frame) for frame in frames[:3]] == [None, frames[1], frames[2]]
    assert TextPrefix(TextFrames(CHAT.dialect), frames[:3]).has_text


def test_what_is_no_json_is_told_apart_by_its_name() -> None:
    """An illegible payload is an event of its name; a payload may be an event's name."""
    assert gone_on("tokens", [b"event: a\ndata: {\n\n"], [b"event: a\ndata: }\n\n"]) == []
    assert gone_on("tokens", [b"event: a\ndata: {\n\n"], [b"event: b\ndata: }\n\n"]) != []
    assert gone_on("chunks", [b"data: x\n\n"], [b"data: [DONE]\n\n"]) == [b"data: [DONE]\n\n"]
    deep = b"data: " + b"[" * 100_000 + b"\n\n"
    assert gone_on("chunks", [], [deep]) == [deep]


def test_a_wire_that_does_not_say_where_its_texts_are() -> None:
    """Cannot be followed, and says so."""
    assert not Dialect().locates_text
    assert TOKENS.locates_text


def test_a_tool_call_under_way_cannot_be_followed() -> None:
    """Its arguments may be cut elsewhere: what is missing is unknown."""

    def piece(arguments: str, **named: str) -> bytes:
        call = {"index": 0, "function": {**named, "arguments": arguments}}
        return f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n".encode()

    with pytest.raises(PrefixMismatch):
        gone_on("openai", [piece('{"a"')], [piece('{"a":1}')])
    with pytest.raises(PrefixMismatch):
        gone_on("openai", [piece("", name="f")], [piece("{}", name="f")])
    assert gone_on("openai", [], [piece("{}")]) == [piece("{}")]


def test_a_failure_may_be_a_part_of_any_event() -> None:
    """As with OpenAI: nothing follows one the client has had, and a new one is told at once."""
    hello = b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n'
    failed, end = b'data: {"error":{"code":"x"}}\n\n', b"data: [DONE]\n\n"
    with pytest.raises(PrefixMismatch):
        gone_on("openai", [hello, failed], [hello, end])
    assert gone_on("openai", [hello], [failed, end]) == [failed, end]


def test_a_declared_wire_tells_its_text_or_not() -> None:
    """In plain text all is text; lines of text lose the white space around them."""
    located = {name: dialect.locates_text for name, dialect in DIALECTS.items()}
    assert located == dict.fromkeys(WIRES, True)
    lines = Dialect(framing="ndjson", payload="text")
    assert not declared_spec("d", DeclaredFlow(path="/d", dialect=lines)).dialect.locates_text


@pytest.mark.untraced
@given(drawn=two_of_one(), share=st.floats(0, 1))
def test_every_piece_belongs_to_a_part_that_the_client_knows(
    drawn: tuple[Speech, Speech, str, str], share: float
) -> None:
    """The AI SDK's client raises on a piece of any other, and so the stream would end."""
    first, other, *_ = drawn
    whole = spoken("ai-sdk", first)
    had = whole[: round(share * (len(whole) - 1))]
    opened: set[tuple[str, str]] = set()
    for frame in [*had, *gone_on("ai-sdk", had, spoken("ai-sdk", other))][:-1]:
        part = json.loads(frame.removeprefix(b"data: "))
        kind, _, step = part["type"].partition("-")
        if step == "delta":
            assert (kind, part["id"]) in opened
        elif step == "start" and "id" in part:
            opened.add((kind, part["id"]))
        elif step == "end":
            opened.remove((kind, part["id"]))
    assert not opened


def test_the_pieces_of_a_message_keep_its_id() -> None:
    """Another id begins another message, and one that is to come keeps its own."""
    first, other = (spoken("langgraph", Speech([], ["He", "llo"], mark)) for mark in ("one", "two"))
    rest = gone_on("langgraph", first[:3], [*other, *spoken("langgraph", Speech([], ["!"], "x"))])
    messages = [json.loads(one.partition(b"data:")[2]) for one in rest if b"messages" in one]
    assert [message["id"] for message, _ in messages] == ["run one", "run x", "run x"]
    assert [message["content"] for message, _ in messages] == ["llo", "", "!"]


def test_ids_that_are_the_same_change_no_byte() -> None:
    """Nothing is written anew that need not be."""
    frames = spoken("ai-sdk", Speech([], ["a", "b", "c"], "m"))
    assert gone_on("ai-sdk", frames[:5], frames) == frames[5:]
    spaced = [frame.replace(b'"delta": ', b'"delta" :  ') for frame in frames]
    assert gone_on("ai-sdk", frames[:4], spaced) == spaced[4:]


def test_plain_text_is_cut_where_the_two_meet() -> None:
    """Whatever is in it; lines of an event stream stay lines."""
    assert gone_on("text", [b"He"], [b"H", b"ello\n", b"\n", b"[DONE]"]) == [
        b"llo\n",
        b"\n",
        b"[DONE]",
    ]
    with pytest.raises(PrefixMismatch):
        gone_on("text", [b"He"], [b"Hi"])
    had = [b"data: a\ndata: b\n\n"]
    frame = b"id: 1\r\ndata: a\r\ndata: bc\r\ndata:\r\ndata: d\r\n\r\n"
    assert gone_on("plain", had, [frame, b"data: [DONE]\n\n"]) == [
        b"id: 1\r\ndata: c\r\ndata: \r\ndata: d\r\n\r\n",
        b"data: [DONE]\n\n",
    ]
