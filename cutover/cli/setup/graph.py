"""`cutover graph`: the steps of a flow as a diagram."""

from __future__ import annotations

import re
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import CutoverError
from cutover.cli.terminal import refusals
from cutover.own_modules import refuse_hidden
from cutover.wiring.stacks import DEFAULTS, diagrams_of

REFUSED = 2
_EDGE = re.compile(r"^\s*(\w+) (-->|-\.->) (\w+)", re.MULTILINE)


class DiagramFormat(StrEnum):
    """How a diagram is written."""

    MERMAID = "mermaid"
    PNG = "png"


class NoGraphviz(CutoverError):
    """PNG files need a program that is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "--format png needs the program `dot` of Graphviz, which is not on the PATH "
            "(Debian: apt install graphviz; macOS: brew install graphviz)"
        )


class GraphvizFailed(CutoverError):
    """Graphviz could not draw a diagram."""

    def __init__(self, path: Path, status: int) -> None:
        super().__init__(f"`dot` ended with {status} and did not write {str(path)!r}")


def graph(
    flow: Annotated[str, typer.Argument(help="The flow.")],
    stack: Annotated[
        str, typer.Option(help="graph, legacy, or package.module:NAME.", show_default=True)
    ] = "graph",
    written_as: Annotated[
        DiagramFormat, typer.Option("--format", help="Mermaid text, or PNG files.")
    ] = DiagramFormat.MERMAID,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of PNG files.")] = Path(),
) -> None:
    """Print the steps of a flow, with the targets of every conditional edge.

    A flow with several ways in has several diagrams. Exit 2: there is none, or no Graphviz.
    """
    with refusals(REFUSED):
        if stack not in DEFAULTS:
            refuse_hidden(stack)
        diagrams = diagrams_of(DEFAULTS.get(stack, stack), flow)  # type: ignore[call-overload]
        if written_as is DiagramFormat.MERMAID:
            typer.echo("\n".join(f"%% {title}\n{text}" for title, text in diagrams.items()))
            return
        dot = shutil.which("dot")
        if dot is None:
            raise NoGraphviz
        for title, text in diagrams.items():
            path = out / f"{title.replace(' ', '-')}.png"
            done = subprocess.run(  # noqa: S603 - the program found above
                [dot, "-Tpng", "-o", str(path)], input=to_dot(text), text=True, check=False
            )
            if done.returncode:
                raise GraphvizFailed(path, done.returncode)
            typer.echo(str(path))


def to_dot(mermaid: str) -> str:
    """Turn the edges of a Mermaid graph into Graphviz's language; conditional ones are dashed."""
    edges = [
        f'  "{source}" -> "{target}"{" [style=dashed]" if arrow == "-.->" else ""};'
        for source, arrow, target in _EDGE.findall(mermaid)
    ]
    return "\n".join(("digraph {", "  node [shape=box, style=rounded];", *edges, "}"))
