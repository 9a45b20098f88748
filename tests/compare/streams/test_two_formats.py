"""Streams of two dialects compared in what both can say, over one answer in every dialect."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.comparison import DialectComparers
from compare.findings import Finding, kind_of
from compare.input.pairing import Pair
from compare.rules import NO_RULES
from compare.streams.dialects import RecordedDialect, flow_dialect
from compare.streams.two_formats import CommonDialect, DialectNotConfigured, common_parts
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.records import ErrorRecord, RunRecord
from contract.wire import FrameSplitter, built_in, dialect_of
from tests.support.recorded_bodies import ARGUMENTS, PIECES, THOUGHTS, TOLD, Story
from tests.support.records import a_run

BUILT_IN = built_in()
PAIRS = list(permutations(BUILT_IN, 2))
each_pair = pytest.mark.parametrize(("old", "new"), PAIRS, ids=" to ".join)
DELTAS = 'terminal = ["end"]\nname = "deltas"\n[text]\ntoken = "t"\n'
WHOLES = 'terminal = ["end"]\nname = "wholes"\ngrowth = "cumulative"\n[text]\nreply = "t"\n'


def run(name: str, body: bytes, dialect: str, **more: Any) -> RunRecord:
    """Return a captured run that has sent a body."""
    splitter = FrameSplitter(BUILT_IN.get(name) or dialect_of(dialect, name, name))
    frames = [*splitter.feed(body), *filter(None, [splitter.flush()])]
    sent = tuple((at, frame.decode()) for at, frame in enumerate(frames))
    return a_run(frames=sent, dialect=name if more.get("stack") == "graph" else "", **more)


def compared(
    old: str, new: str, legacy: RunRecord, graph: RunRecord, texts: tuple[str, str] = ("", "")
) -> tuple[Finding, ...]:
    """Compare two captured runs of a flow whose services have formats of their own."""
    dialects = (
        BUILT_IN.get(name) or dialect_of(text, name, name)
        for name, text in zip((old, new), texts, strict=True)
    )
    comparers = DialectComparers(CommonDialect("support", *dialects), "tape", NO_RULES)
    pair, comparer = comparers.in_normal_form(Pair("e", "support", legacy, graph, ()))
    return comparer.compare(pair)


def causes_of(old: str, new: str, one: Story, other: Story) -> list[tuple[str, str]]:
    """Compare streams of two dialects; returns layer and kind of each cause."""
    legacy = run(old, TOLD[old](one), "", stack="legacy")
    graph = run(new, TOLD[new](other), "", stack="graph")
    found = compared(old, new, legacy, graph)
    return [(it.layer, kind_of(it)) for it in found if it.after is None]


@each_pair
def test_one_answer_is_equal_however_it_is_framed_and_cut(old: str, new: str) -> None:
    """Ids, times, names of events and pieces are each format's own."""
    whole = Story(("".join(PIECES),), ("".join(THOUGHTS),), (ARGUMENTS[:8], ARGUMENTS[8:]), 1)
    assert causes_of(old, new, Story(), whole) == []


@given(pair=st.sampled_from(PAIRS), pieces=st.lists(st.text(min_size=1), min_size=1), cut=st.data())
def test_any_text_is_equal_to_itself_and_to_no_other(
    pair: tuple[str, str], pieces: list[str], cut: st.DataObject
) -> None:
    """Wherever each of them cuts it."""
    text = "".join(pieces).encode("utf-8", "replace").decode()
    at = cut.draw(st.integers(0, len(text)))
    again = Story([part for part in (text[:at], text[at:]) if part])
    assert causes_of(*pair, Story([text]), again) == []
    [(layer, kind)] = causes_of(*pair, Story([text]), Story([*again.pieces, "x"]))
    assert (layer, kind) == ("text", "text_changed")


@each_pair
def test_another_tool_call_is_found_where_both_have_tool_calls(old: str, new: str) -> None:
    """In a format without tool calls they cannot differ."""
    other = Story(arguments=('{"city":"北京","days":3}',))
    found = causes_of(old, new, Story(), other)
    assert bool(found) == ("tool_call" in common_parts(BUILT_IN[old], BUILT_IN[new]))
    assert {layer for layer, _ in found} <= {"frames"}


@each_pair
def test_a_stream_without_its_end_is_found(old: str, new: str) -> None:
    """By its outcome, and the missing end follows from that."""
    legacy = run(old, TOLD[old](Story()), "", stack="legacy")
    graph = run(new, TOLD[new](Story()), "", stack="graph")
    error = ErrorRecord("connection_lost")
    frames = graph.frames[: len(graph.frames) - bool(BUILT_IN[new].terminal)]
    broken = msgspec.structs.replace(graph, frames=frames, outcome="truncated", error=error)
    found = compared(old, new, legacy, broken)
    assert [it.layer for it in found if it.after is None] == ["outcome"]


def test_failures_are_alike_whatever_their_codes_and_what_follows_them() -> None:
    """One format closes a failed stream with its terminal event, another does not."""
    failed = ErrorRecord("reported")
    bodies = {
        "openai": b'data: {"error":{"code":"overloaded"}}\n\ndata: [DONE]\n\n',
        "ndjson": b'{"error":"no model"}\n',
    }
    legacy, graph = (
        run(name, body, "", stack=stack, outcome="failed", error=failed)
        for (name, body), stack in zip(bodies.items(), ("legacy", "graph"), strict=True)
    )
    assert compared("openai", "ndjson", legacy, graph) == ()


def sse(*events: tuple[str, str]) -> bytes:
    """Frame events of names and payloads."""
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events).encode()


def test_a_cumulative_text_is_the_same_as_its_pieces_until_it_takes_back() -> None:
    """What was shown and is taken back is a difference, though the text ends up the same."""
    pieces = run(
        "deltas", sse(("token", '{"t":"a"}'), ("token", '{"t":"b"}'), ("end", "{}")), DELTAS
    )
    grown = [("reply", '{"t":"a"}'), ("reply", '{"t":"ab"}'), ("end", "{}")]
    whole = run("wholes", sse(*grown), WHOLES, stack="graph")
    assert compared("deltas", "wholes", pieces, whole, (DELTAS, WHOLES)) == ()
    back = run("wholes", sse(("reply", '{"t":"x"}'), *grown[1:]), WHOLES, stack="graph")
    found = compared("deltas", "wholes", pieces, back, (DELTAS, WHOLES))
    assert "frames[0].text→text_replaced" in {it.path for it in found if it.after is None}


def test_other_events_count_where_both_dialects_give_them_one_name() -> None:
    """By `[event] names`."""
    source, link = ("source", '{"url":"/a"}'), ("link", '{"url":"/b"}')
    old = DELTAS + '[event]\nnames = { source = "source" }\n'
    new = WHOLES + '[event]\nnames = { link = "source" }\n'
    end = ("end", "{}")
    legacy = run("deltas", sse(("token", '{"t":"a"}'), source, end), old)
    graph = run("wholes", sse(("reply", '{"t":"a"}'), link, end), new, stack="graph")
    [found] = compared("deltas", "wholes", legacy, graph, (old, new))
    assert (found.layer, found.path) == ("frames", "frames[1].source.url")
    assert compared("deltas", "wholes", legacy, graph, (DELTAS, WHOLES)) == ()


def test_a_run_names_the_dialect_it_was_captured_in() -> None:
    """One that the configuration does not have is not guessed at."""
    flow = DeclaredFlow(path="/a", dialect=BUILT_IN["text"], graph_dialect=BUILT_IN["ndjson"])
    both = flow_dialect(declared_spec("support", flow))
    one = flow_dialect(declared_spec("support", msgspec.structs.replace(flow, graph_dialect=None)))
    assert isinstance(both, CommonDialect)
    assert isinstance(one, RecordedDialect)
    graph = run("ndjson", TOLD["ndjson"](Story()), "", stack="graph")
    assert both.captured(graph).names == {"text", "end"}
    earlier = msgspec.structs.replace(graph, dialect="")  # before its service had a format apart
    assert both.captured(msgspec.structs.replace(earlier, frames=((0, "a"),))).names == {
        "text",
        "end",
    }
    for reader, run_of in ((one, graph), (both, msgspec.structs.replace(graph, dialect="other"))):
        with pytest.raises(DialectNotConfigured, match="which the flow does not have"):
            reader.captured(run_of)
