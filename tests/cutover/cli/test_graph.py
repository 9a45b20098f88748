"""`cutover graph` prints every graph, as the documentation shows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contract.flows import SPECS
from cutover.cli import app
from graph_impl import describe
from legacy import describe as describe_legacy

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "flows.md"
DOT = """#!/bin/sh
cat > "$3.dot"; cp "$3.dot" "$3"
"""


def graph(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["graph", *arguments])


@pytest.mark.parametrize("flow", SPECS)
def test_the_documentation_shows_what_is_printed(flow: str) -> None:
    """Every diagram of the graph stack, and what the legacy stack says of itself."""
    printed, documented = graph(flow).output, DOCUMENT.read_text("utf-8")
    for title, text in describe(flow).items():
        assert f"%% {title}\n{text}" in printed
        assert f"```mermaid\n{text}```" in documented
    legacy = graph(flow, "--stack", "legacy").output
    for title, text in describe_legacy(flow).items():
        assert f"%% {title}\n{text}" in legacy


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nope",), "'graph_impl:FLOWS' has no diagram of flow 'nope'"),
        (("chat", "--stack", "rules"), "'rules' has no diagram of flow 'chat'"),
        (("chat", "--stack", "no.such"), "stack 'no.such' cannot be loaded"),
    ],
)
def test_a_flow_without_a_diagram_is_refused(arguments: tuple[str, ...], error: str) -> None:
    """With the stack and the flow named."""
    refused = graph(*arguments)
    assert refused.exit_code == 2
    assert error in refused.output


def test_png_files_are_drawn_by_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for each diagram, drawn by the program on the PATH; conditional edges are dashed."""
    dot = tmp_path / "dot"
    dot.write_text(DOT)
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    drawn = graph("companion", "--format", "png", "-o", str(tmp_path))
    assert drawn.exit_code == 0
    files = [Path(line) for line in drawn.output.splitlines()]
    assert [file.name for file in files] == ["companion-messages.png", "companion-pictures.png"]
    text = files[1].read_text()
    assert '"__start__" -> "vision";' in text
    assert '"vision" -> "memory_extraction" [style=dashed];' in text


def test_png_files_need_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = graph("chat", "--format", "png")
    assert refused.exit_code == 2
    assert "apt install graphviz" in refused.output
