"""Equality: what comparing finds, and what serving and comparing call equal, is one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compare.comparison import Comparer, DialectComparers, ruling_of
from compare.findings import tells_apart
from compare.input.pairing import Pair
from compare.rules import NO_RULES, Rules, rules_of
from compare.streams.dialects import RecordedDialect
from contract.calls import same_json
from contract.equality import Chunking, raw_equal
from contract.flows.chat import CHAT
from contract.model import GATEWAY_SITE
from contract.records import EntryRecord, ErrorRecord, PlayRecord, RunRecord
from contract.wire import Dialect, dialect_of
from cutover.selftest.exchanges import exchange
from cutover.selftest.run_faults import SOUND

RULES = rules_of(
    """
[[ignore]]
path = "extra"
[[unordered]]
path = "tool_calls"
[[replace]]
pattern = "[0-9]+"
with = "#"
[[tolerance]]
path = "temperature"
absolute = 0.5
""",
    "diff.toml",
)
DELTAS = """
terminal = ["done"]
text = { token = "text" }
reasoning = { thought = "text" }
errors = { events = ["error"], code = "code" }
"""
LINES = """
framing = "ndjson"
event = { path = "kind" }
text = { token = { path = "text", growth = "cumulative" } }
grammar = { steps = [{ some = ["*"] }, { one = "end" }], never_shrinks = true }
"""
PLAIN = 'framing = "text"\npayload = "text"\n'


def named(name: str, text: str) -> Dialect:
    """Read a dialect."""
    return dialect_of(text, f"{name}.toml", name)


STREAMS: dict[str, tuple[Dialect | None, list[str]]] = {
    "chat": (None, [text for _, text in exchange(SOUND)[0].frames]),
    "deltas": (
        named("deltas", DELTAS),
        [
            'event: start\ndata: {"id": "a", "model": {"x": 1.0, "y": null}}\n\n',
            'event: thought\ndata: {"text": "hm"}\n\n',
            *(f'event: token\ndata: {{"text": "{piece}"}}\n\n' for piece in ("ab", "c", "12", "d")),
            'event: usage\ndata: {"out": 7, "list": [1, 2]}\n\n',
            "event: done\ndata: {}\n\n",
        ],
    ),
    "lines": (
        named("lines", LINES),
        [
            '{"kind":"start","n":0.0}\n',
            *(f'{{"kind":"token","text":"{text}"}}\n' for text in ("a", "ab", "ab1", "ab1d")),
            '{"kind":"end","ok":true}\n',
        ],
    ),
    "plain": (named("plain", PLAIN), ["one ", "two ", "3", " four"]),
}
ASKED = {
    "model_id": "m",
    "messages": [
        {"role": "system", "content": "cook 12"},
        {"role": "user", "content": [{"type": "text", "text": "basil?"}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ],
    "more": {"temperature": 0.7, "tools": [{"type": "function"}], "n": 1},
}
JSONS = st.sampled_from(
    [None, 0, 1, 1.0, 0.0, -0.0, True, "", "x", "12", [], ["x"], [1], {}, {"a": None}, {"b": [2]}]
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Change a JSON value in one place, which may be no difference at all."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        how = draw(st.sampled_from(["inside", "inside", "inside", "null", "gone", "order"]))
        match how:
            case "inside":
                return {**value, key: draw(changed(value[key]))}
            case "null":
                return {**value, draw(st.sampled_from([key, "extra", "index"])): None}
            case "gone":
                return {name: held for name, held in value.items() if name != key}
            case _:
                return dict(reversed(value.items()))
    if isinstance(value, list) and value:
        at = draw(st.integers(0, len(value) - 1))
        match draw(st.sampled_from(["inside", "inside", "inside", "gone", "order", "twice"])):
            case "inside":
                return [*value[:at], draw(changed(value[at])), *value[at + 1 :]]
            case "gone":
                return [*value[:at], *value[at + 1 :]]
            case "order":
                return value[::-1]
            case _:
                return [*value, value[at]]
    if isinstance(value, str) and draw(st.booleans()):
        return draw(st.sampled_from([value + "!", value[:-1], value.upper(), [value]]))
    if isinstance(value, int | float) and draw(st.booleans()):
        return draw(st.sampled_from([float(value), -value, value + 0.25]))
    return draw(JSONS)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Write JSON as one library or another does."""
    return json.dumps(
        value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
    )


@st.composite
def payload_changed(draw: st.DrawFn, frame: str) -> str:
    """Change the payload of a frame, or how it is written."""
    start, end = frame.find("{"), frame.rfind("}") + 1
    try:
        value = json.loads(frame[start:end])
    except ValueError:
        return draw(st.sampled_from([frame + "x", frame[:-1] or "y", frame.upper()]))
    if draw(st.booleans()):
        value = draw(changed(value))
    lines = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return frame[:start] + json.dumps(value, separators=lines) + frame[end:]


@st.composite
def frames_changed(draw: st.DrawFn, frames: list[str]) -> list[str]:
    """Change a stream: frames dropped, repeated, moved, renamed, with comments, cut elsewhere."""
    if not frames:
        return [": only a comment\n\n"]
    at = draw(st.integers(0, len(frames) - 1))
    before, frame, after = frames[:at], frames[at], frames[at + 1 :]
    match draw(st.sampled_from(["payload", "payload", "drop", "twice", "move", "name", "comment"])):
        case "payload":
            return [*before, draw(payload_changed(frame)), *after]
        case "drop":
            return before + after
        case "twice":
            return [*before, frame, frame, *after]
        case "move":
            rest = before + after
            to = draw(st.integers(0, len(rest)))
            return [*rest[:to], frame, *rest[to:]]
        case "name":
            names = [("token", "thought"), ("SEND", "SUCCESS"), ("event: ", "event:x"), ("{", "[")]
            old, new = draw(st.sampled_from(names))
            return [*before, frame.replace(old, new, 1), *after]
        case _:
            return [*before, ": served-by graph 1a2b\n\n", frame, *after]


@st.composite
def play_changed(draw: st.DrawFn, play: PlayRecord, args: bytes) -> PlayRecord:
    """Change one call: what was asked, where, what answered, behind how many frames."""
    match draw(st.sampled_from(["args", "args", "site", "missed", "frames", "live", "nearest"])):
        case "args":
            asked = draw(written(draw(changed(json.loads(args))))).encode()
            return replace(play, how="nearest", args=msgspec.Raw(asked))
        case "site":
            return replace(play, site=draw(st.sampled_from(["elsewhere", GATEWAY_SITE])))
        case "missed":
            return replace(play, how="missed", entry=None, args=msgspec.Raw(args))
        case "frames":
            return replace(play, frames=draw(st.integers(-1, 16)))
        case "live":
            return replace(play, how="live", args=msgspec.Raw(args), entry=None)
        case _:
            return replace(play, how="nearest", entry=draw(st.integers(0, 12)))


@st.composite
def plays_changed(
    draw: st.DrawFn, plays: tuple[PlayRecord, ...], tape: tuple[EntryRecord, ...]
) -> tuple[PlayRecord, ...]:
    """Change what a run called, or in which order."""
    if not plays:
        return (
            PlayRecord(port="clock", op="now", site="x", how="missed", args=msgspec.Raw(b"{}")),
        )
    at = draw(st.integers(0, len(plays) - 1))
    before, play, after = plays[:at], plays[at], plays[at + 1 :]
    recorded = {entry.seq: bytes(entry.args) for entry in tape}
    match draw(st.sampled_from(["call", "call", "call", "drop", "twice", "move"])):
        case "call":
            args = play.args or recorded.get(play.entry or 0, b"{}")
            return (*before, draw(play_changed(play, bytes(args))), *after)
        case "drop":
            return before + after
        case "twice":
            return (*plays, play)
        case _:
            rest = before + after
            to = draw(st.integers(0, len(rest)))
            return (*rest[:to], play, *rest[to:])


ENDINGS: list[dict[str, Any]] = [
    {"outcome": "failed", "error": ErrorRecord("crash", kind="KeyError")},
    {"outcome": "failed", "error": ErrorRecord("crash", kind="TypeError", where="a.py:1")},
    {"outcome": "failed", "error": ErrorRecord("model_error")},
    {"outcome": "refused", "error": ErrorRecord("busy", status=409, detail="later")},
    {"outcome": "refused", "error": ErrorRecord("busy", status=409, detail="never")},
    {"outcome": "refused", "error": ErrorRecord("busy")},
    {"outcome": "truncated"},
    {"outcome": "truncated", "error": ErrorRecord("grammar", kind="SEND")},
    {"role": "fallback", "sent": 2},
    {"resumes": "x-1"},
    {"tape": ()},
]


def gateway_runs(asked: bytes) -> tuple[RunRecord, RunRecord]:
    """Return two runs that asked the model through the gateway, once each."""
    entry = EntryRecord(
        seq=0, port="model", op="stream", site=GATEWAY_SITE, at=0, end="complete",
        args=msgspec.Raw(asked),
    )  # fmt: skip
    play = PlayRecord(port="model", op="stream", site=GATEWAY_SITE, how="live", entry=0)
    control, candidate = exchange()
    return (
        replace(control, tape=(entry,), plays=(play,)),
        replace(candidate, plays=(replace(play, how="exact"),)),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, Pair]:
    """Draw two runs that differ in a few places, or in nothing that counts."""
    name = draw(st.sampled_from(list(STREAMS)))
    gateway = draw(st.booleans())
    control, candidate = gateway_runs(msgspec.json.encode(ASKED)) if gateway else exchange(SOUND)
    tape = control.tape or ()
    base = STREAMS[name][1]
    sides = [list(base), list(base)]
    runs = [control, candidate]
    places = ["frames", "frames", "frames", "plays", "plays", "plays", "ending", "both", "tape"]
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 2, 3]))):
        side = draw(st.sampled_from([1, 1, 1, 0]))
        match draw(st.sampled_from(places)):
            case "frames":
                sides[side] = draw(frames_changed(sides[side]))
            case "plays":
                runs[side] = replace(runs[side], plays=draw(plays_changed(runs[side].plays, tape)))
            case "ending":
                runs[side] = replace(runs[side], **draw(st.sampled_from(ENDINGS)))
            case "both":
                if sides[0] == sides[1]:
                    sides = [draw(frames_changed(sides[0]))] * 2
            case _:
                more = EntryRecord(
                    seq=90, port="clock", op="now", site="late", at=0, end="complete",
                    args=msgspec.Raw(b"{}"),
                )  # fmt: skip
                tape = (*tape, more)
    control, candidate = (
        replace(run, frames=tuple((k * 1_000, frame) for k, frame in enumerate(frames)))
        for run, frames in zip(runs, sides, strict=True)
    )
    return name, Pair("x", "chat", control, candidate, tape)


def comparer_of(name: str, pair: Pair, chunking: Chunking, rules: Rules) -> tuple[Pair, Comparer]:
    """Return what compares a pair, and the pair as it reads it."""
    dialect, _ = STREAMS[name]
    if dialect is None:
        return pair, Comparer(CHAT, chunking, ruling_of(rules, "chat", CHAT))
    return DialectComparers(RecordedDialect(dialect), chunking, rules).in_normal_form(pair)


@pytest.mark.parametrize("number", ["1.0", "1e0", "100e-2"])
def test_a_whole_number_in_a_call_is_that_integer(number: str) -> None:
    """A replay reads `1` of a request into a float, and writes `1.0`."""
    assert same_json(b'{"a":[1],"b":null}', f'{{"b":null,"a":[{number}]}}'.encode())
    assert not same_json(b'{"a":1}', b'{"a":true}')
    assert not same_json(b'{"a":1', b'{"a": 1')


@pytest.mark.untraced
@given(
    drawn=pairs(),
    chunking=st.sampled_from(["tape", "ignore", "exact"]),
    rules=st.sampled_from([NO_RULES, NO_RULES, RULES]),
)
def test_comparing_finds_a_difference_exactly_where_runs_are_not_equal(
    drawn: tuple[str, Pair], chunking: Chunking, rules: Rules
) -> None:
    """Over changed outcomes, frames, cuts, comments, calls, orders, settings and null fields."""
    pair, comparer = comparer_of(*drawn, chunking, rules)
    found = list(filter(tells_apart, comparer.compare(pair)))
    assert (comparer.judge(pair) == "equal") is not bool(found)
    if raw_equal(pair):
        assert found == []
