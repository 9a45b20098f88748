"""`python -m harness.diagrams`: write the graphs' diagrams into docs/architecture.md anew."""

from __future__ import annotations

from pathlib import Path

from graph_impl import GRAPHS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
HEADING = "## The graphs"


def diagrams() -> str:
    """Return the section: each graph as Mermaid, every conditional edge with its targets."""
    drawn = [
        f"### {name}\n\n```mermaid\n{graph.get_graph().draw_mermaid().strip()}\n```\n"
        for name, graph in GRAPHS.items()
    ]
    return "\n".join([f"{HEADING}\n", *drawn])


if __name__ == "__main__":
    before, _, _ = PAGE.read_text("utf-8").partition(HEADING)
    PAGE.write_text(before + diagrams(), "utf-8")
