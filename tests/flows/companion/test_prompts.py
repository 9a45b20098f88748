"""The companion's prompts: one text on both stacks, whatever stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_impl import companion as graph
from graph_impl.templates import FOLDER as GRAPH
from legacy import companion as legacy
from legacy.templates import FOLDER as LEGACY

PLACES = [None, Path("no such folder")]
NAMES = ("current_date", "current_time", "emotion", "intensity", "intent")
MORE = ("working_memory", "memories", "no_text")


@pytest.mark.parametrize("place", PLACES)
@given(st.fixed_dictionaries({name: st.text(max_size=20) for name in (*NAMES, *MORE)}))
def test_prompts_render_alike(place: Path | None, values: dict[str, str]) -> None:
    """Also with braces in what is filled in, and where the files are missing."""
    old = legacy.read_prompts(place or LEGACY)
    new = graph.read_prompts(place or GRAPH)
    for name in ("system", "vision", "extraction"):
        assert old[name](values) == new[name](values)
