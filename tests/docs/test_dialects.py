"""What docs/dialects.md shows is what happens, and its table of keys is whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.testing import CliRunner

from contract.flows import SPECS
from contract.wire import (
    Dialect,
    ErrorPaths,
    EventNames,
    GrammarTable,
    StepTable,
    ToolPaths,
    built_in,
)
from cutover.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "dialects.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """Return the page's blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.untraced
def test_the_example_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, its command, what it says; the width of columns apart."""
    monkeypatch.chdir(tmp_path)
    [declaration] = blocks("toml")
    legacy, graph = blocks("text")
    [session] = blocks("console")
    for name, text in (
        ("helpdesk.toml", declaration),
        ("legacy.sse", legacy),
        ("graph.sse", graph),
    ):
        Path(name).write_text(text, "utf-8")
    command, *shown = session.splitlines()
    result = CliRunner().invoke(app, command.split()[2:])
    assert result.exit_code == 1
    said = [" ".join(line.split()) for line in result.output.splitlines()]
    for line in shown:
        assert " ".join(line.split()) in said


def test_the_page_names_every_key() -> None:
    """Those of the tables below, too."""
    for kind in (Dialect, EventNames, ToolPaths, ErrorPaths, GrammarTable, StepTable):
        for key in kind.__struct_encode_fields__:
            assert re.search(rf"`\[?{key}\b", PAGE), key
    for key in ("framing", "payload", "growth", "empty"):
        for word in get_args(get_type_hints(Dialect)[key]):
            assert f'"{word}"' in PAGE


def test_the_page_names_every_built_in_dialect() -> None:
    """And every flow."""
    assert all(f"`{name}`" in PAGE for name in (*built_in(), *SPECS))
