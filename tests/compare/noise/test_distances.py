"""Distances: what two runs of one message have in common."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.noise.distances import (
    AnswerReader,
    Distances,
    MeasuredAnswer,
    apart,
    share_edited,
    share_unlike,
    tokens,
    tools,
)
from contract.flows.chat import CHAT
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import FrameSplitter, built_in
from cutover.selftest.exchanges import Script, exchange, tool
from tests.support.recorded_bodies import TOLD, Story
from tests.support.records import a_run

TEXTS = st.text(alphabet="ab 今天,。é", max_size=30)


def distances(legacy: Script, graph: Script) -> Distances:
    """Measure what two scripts do, each on a tape of its own."""
    reader = AnswerReader(CHAT)
    old, new = (exchange(script)[0] for script in (legacy, graph))
    return apart(reader.read(old), reader.read(new))


def declared(wire: str, *pieces: str, **more: Any) -> MeasuredAnswer:
    """Read what a service says on a wire of its own, one frame for each of its lines."""
    body = TOLD[wire](Story(pieces, **more))
    frames = FrameSplitter(built_in()[wire]).feed(body)
    run = a_run(frames=tuple((at, frame.decode()) for at, frame in enumerate(frames)))
    spec = declared_spec("support", DeclaredFlow(path="/s", dialect=built_in()[wire]))
    return AnswerReader(spec).read(run)


@pytest.mark.parametrize("wire", ["openai", "ai-sdk", "langgraph", "ndjson"])
def test_services_of_any_wire_are_measured(wire: str) -> None:
    """Texts however they are cut, tools as the stream shows them, events beside the pieces."""
    legacy = declared(wire, "It is ", "sunny.")
    assert apart(legacy, declared(wire, "It", " is sunny.", number=3)) == (0, 0, 0)
    assert apart(legacy, declared(wire, "It is", " windy.")) == (0.25, 0, 0)
    elsewhere = declared(wire, "It is sunny.", arguments=('{"city":"Ulm","days":2}',))
    assert apart(legacy, elsewhere) == (0, 0.5, 0)


def test_plain_text_is_measured() -> None:
    """It has words alone."""
    assert apart(declared("text", "a b"), declared("text", "a", " c")) == (0.5, 0, 0)


def test_chinese_counts_by_the_character_and_english_by_the_word() -> None:
    """Spaces do not count, and neither does how an accent is written."""
    assert tokens("今天 GPT-4 fine") == ("今", "天", "GPT", "-", "4", "fine")
    assert tokens("a  b\n") == tokens("a b")
    assert tokens("é") == tokens("e\u0301")


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_a_distance_is_symmetric_and_a_share(one: str, other: str) -> None:
    """And zero of the same."""
    left, right = tokens(one), tokens(other)
    assert share_edited(left, right) == share_edited(right, left)
    assert 0 <= share_edited(left, right) <= 1
    assert share_edited(left, left) == 0


def test_equal_runs_are_zero_apart() -> None:
    """However the text was cut."""
    assert distances(Script(), Script()) == Distances(0, 0, 0)


def test_another_word_moves_the_text_alone() -> None:
    """One token of four."""
    found = distances(Script(pieces=("a b c d",)), Script(pieces=("a b c e",)))
    assert found == Distances(0.25, 0, 0)


def test_tools_count_by_name_and_argument() -> None:
    """Half of what either call says is said by both; the order does not count."""
    city, day = '{"city":"北京","days":1}', '{"city":"北京","days":2}'
    same = distances(Script(tools=(tool(0, city),)), Script(tools=(tool(0, day),)))
    assert same.tools == pytest.approx(0.5)
    twice = Script(tools=(tool(0, city), tool(1, day))), Script(tools=(tool(0, day), tool(1, city)))
    assert distances(*twice).tools == 0
    assert distances(Script(), Script(tools=(tool(0),))).tools == 1


def test_arguments_that_are_no_object_count_as_they_stand() -> None:
    """A model writes what it likes."""
    broken = msgspec.json.encode(tool(0, "{oops"))
    assert share_unlike(tools([broken]), tools([broken])) == 0
    assert share_unlike(tools([broken]), tools([msgspec.json.encode(tool(0, "[1]"))])) > 0
    assert share_unlike(tools([b"\xff"]), tools([b"{}"])) == 1


def test_structure_is_names_counts_and_the_outcome() -> None:
    """A lost event and another outcome are both seen."""
    lost = distances(Script(), Script(spoil=lambda sent: sent[:-1]))
    failed = distances(Script(), Script(outcome="failed"))
    assert lost.structure > 0
    assert failed.structure > 0
    assert (lost.text, failed.text) == (0, 0)
