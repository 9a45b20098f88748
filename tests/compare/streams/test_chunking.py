"""Chunk boundaries: where a text is cut says nothing, unless it is asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compare.comparison import Comparer
from compare.findings import Finding, kind_of
from compare.input.pairing import Pair
from contract.equality import Chunking
from cutover.selftest.exchanges import exchange
from tests.support.recorded_bodies import ARGUMENTS, DIALECTS, PIECES, TOLD, Story, dialect

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=24) | st.just(
    "今天🧥 e\u0301 👩‍👩‍👧 \\n\n"  # pieces may end within what people see as one character
)


@st.composite
def cut(draw: st.DrawFn, text: str) -> tuple[str, ...]:
    """Cut a text anywhere between two code points, empty pieces included."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return tuple(text[a:b] for a, b in pairwise([0, *cuts, len(text)]))


@st.composite
def retold(draw: st.DrawFn) -> tuple[Story, Story]:
    """Draw one story cut in two ways."""
    text, thought = draw(WORDS), draw(WORDS)
    first, second = (
        Story(
            draw(cut(text)),
            draw(cut(thought)),
            draw(cut(ARGUMENTS)),
            number,
        )
        for number in (1, 2)
    )
    return first, second


def findings(
    name: str, legacy: bytes, graph: bytes, chunking: Chunking = "ignore"
) -> tuple[Finding, ...]:
    """Compare two bodies."""
    named = dialect(name)
    streams = [named.normaliser.stream(body) for body in (legacy, graph)]
    wire = named.wire(streams[0].names | streams[1].names)
    control, candidate = (
        replace(run, role="serving", tape=None, plays=(), frames=stream.frames)
        for run, stream in zip(exchange(), streams, strict=True)
    )
    return Comparer(wire, chunking).compare(Pair("x", "f", control, candidate, ()))


@pytest.mark.untraced
@pytest.mark.parametrize("name", DIALECTS)
@given(stories=retold())
def test_the_same_text_cut_anywhere_is_equal(name: str, stories: tuple[Story, Story]) -> None:
    """Deltas, cumulative texts, pieces of arguments; one character may be spread over frames."""
    legacy, graph = (TOLD[name](story) for story in stories)
    assert findings(name, legacy, graph) == ()


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in {"ops", "text"}])
def test_where_a_text_is_cut_counts_when_asked(name: str) -> None:
    """Delta or cumulative; a reply of ops comes whole, and a body of plain text is not cut."""
    text = "".join(PIECES)
    legacy, graph = (TOLD[name](Story(pieces)) for pieces in (PIECES, (text[:3], text[3:])))
    assert findings(name, legacy, graph) == ()
    found = findings(name, legacy, graph, "exact")
    assert {finding.layer for finding in found} == {"frames"}
    assert {kind_of(finding) for finding in found} <= {"chunks_moved", "frame_dropped"}
    assert findings(name, legacy, legacy, "exact") == ()


@pytest.mark.untraced
@pytest.mark.parametrize("name", DIALECTS)
@given(stories=retold(), data=st.data())
def test_a_changed_character_is_always_found(
    name: str, stories: tuple[Story, Story], data: st.DataObject
) -> None:
    """However both texts are cut."""
    legacy, graph = stories
    text = "".join(graph.pieces)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + ("b" if text[at] == "a" else "a") + text[at + 1 :]
    other = Story(data.draw(cut(changed)), graph.thoughts, graph.arguments, graph.number)
    found = findings(name, TOLD[name](legacy), TOLD[name](other))
    assert [(f.layer, kind_of(f)) for f in found if f.after is None] == [("text", "text_changed")]
