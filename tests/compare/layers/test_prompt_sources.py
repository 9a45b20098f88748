"""Prompts that differ are traced to template, line and variable, by a map and no code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.findings import PromptSource
from compare.layers.prompt_sources import (
    Dynamic,
    Literal,
    MappedPrompt,
    Piece,
    PromptMap,
    Variable,
    read_prompt_map,
    source_of,
    spans_of,
)
from compare.report.document import source_text
from contract.declarations import DeclarationRefused

SYSTEM = MappedPrompt(
    "system.j2",
    (
        Literal("You are ", "_head.j2", 1),
        Variable("bot", "_head.j2", 1),
        Literal(".\n", "_head.j2", 1),
        Literal("Today is ", "system.j2", 2),
        Variable("date", "system.j2", 2),
        Literal(".\n", "system.j2", 2),
        Dynamic("for", "system.j2", 3),
        Literal("Be brief and kind.\n", "system.j2", 6),
    ),
)
OTHER = MappedPrompt("other.j2", (Literal("You are ", "other.j2", 1), Variable("x", "other.j2", 1)))
KNOWN = PromptMap((OTHER, SYSTEM))
LEGACY = "You are Akao.\nToday is Sunday.\na: b\nBe brief and kind.\n"


@pytest.mark.parametrize(
    ("graph", "source"),
    [
        (LEGACY.replace("Akao", "None"), PromptSource("system.j2", "_head.j2", 1, variable="bot")),
        (LEGACY.replace("Sunday", ""), PromptSource("system.j2", "system.j2", 2, variable="date")),
        (LEGACY.replace("a: b", "a"), PromptSource("system.j2", "system.j2", 3, computed="for")),
        (LEGACY.replace("brief", "short"), PromptSource("system.j2", "system.j2", 6)),
        (LEGACY.removesuffix("\n"), PromptSource("system.j2", "system.j2", 6)),
        (LEGACY.replace("Today", "today"), PromptSource("system.j2", "system.j2", 2)),
        (f"{LEGACY}\n", PromptSource("system.j2", "system.j2", 6)),
        (None, PromptSource("system.j2", "_head.j2", 1)),
    ],
)
def test_a_difference_has_a_source(graph: str | None, source: PromptSource) -> None:
    """The value that is another, or the piece in which the texts part."""
    assert source_of(KNOWN, LEGACY, graph) == source


def test_what_fits_no_template_has_none() -> None:
    """Nor does what is so little that it would fit anything."""
    little = MappedPrompt("little.j2", (Variable("a", "little.j2", 1), Literal("\n", "", 1)))
    assert source_of(PromptMap((little, SYSTEM)), "Hello\n", "Hullo\n") is None
    assert source_of(PromptMap(), LEGACY, "") is None
    assert source_of(KNOWN, None, None) is None


def test_graph_alone_can_be_traced() -> None:
    """Where legacy said what no template says."""
    source = source_of(KNOWN, "Nothing of ours", LEGACY)
    assert source == PromptSource("system.j2", "_head.j2", 1)


def test_a_source_is_said_in_a_line() -> None:
    """File first, as editors open them."""
    said = source_text(PromptSource("system.j2", "_head.j2", 1, variable="bot"))
    assert said == "_head.j2:1 (in system.j2): the variable 'bot'"
    assert source_text(PromptSource("a.j2", "a.j2", 3)) == "a.j2:3: the template's own text"
    assert source_text(PromptSource("a.j2", "a.j2", 3, computed="for")).endswith("there (for)")


def test_a_map_that_is_none_is_refused(tmp_path: Path) -> None:
    """As other files are: with its name."""
    file = tmp_path / "prompts.map.json"
    file.write_bytes(msgspec.json.encode(KNOWN))
    assert read_prompt_map(file) == KNOWN
    file.write_text('{"prompts": [{}]}', "utf-8")
    with pytest.raises(DeclarationRefused, match="no map of prompts"):
        read_prompt_map(file)
    file.write_text('{"v": 2}', "utf-8")
    with pytest.raises(DeclarationRefused, match="version 2"):
        read_prompt_map(file)


TEXTS = st.text(alphabet="ab\n", max_size=3)
PIECES = st.lists(
    TEXTS.filter(bool).map(lambda text: Literal(text, "", 1)) | st.just(Variable("v", "", 1)),
    max_size=6,
)


@given(pieces=PIECES, values=st.lists(TEXTS, min_size=6, max_size=6))
def test_what_a_template_makes_fits_it(pieces: list[Piece], values: list[str]) -> None:
    """Whatever the values: spans are in order, without gaps, and literals stand in theirs."""
    text = "".join(
        piece.text if isinstance(piece, Literal) else value
        for piece, value in zip(pieces, values, strict=False)
    )
    spans = spans_of(pieces, text)
    assert spans is not None
    assert [start for start, _ in spans[1:]] == [end for _, end in spans[:-1]]
    for piece, (start, end) in zip(pieces, spans, strict=True):
        assert not isinstance(piece, Literal) or text[start:end] == piece.text
