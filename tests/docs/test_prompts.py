"""The page on prompts names every prompt of the built-in flows, and its parameters."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import graph_impl.templates
import legacy.templates

PAGE = Path(__file__).resolve().parents[2] / "docs" / "prompts.md"
_ROW = re.compile(r"^\| (?:`\w+` )?\| `(\w+)` \| (.*) \|$", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def test_the_page_names_every_prompt_with_its_parameters() -> None:
    """Those of both stacks, and none that is not there."""
    due = {
        path.stem: {name for _, name, *_ in Formatter().parse(path.read_text("utf-8")) if name}
        for path in graph_impl.templates.FOLDER.glob("*.md")
    }
    rows = {name: set(_NAME.findall(told)) for name, told in _ROW.findall(PAGE.read_text("utf-8"))}
    rows["chat_system"].remove("prompt_params")  # others of the request's own
    assert rows == due
    assert due.keys() == {path.stem for path in legacy.templates.FOLDER.glob("*.j2")}
