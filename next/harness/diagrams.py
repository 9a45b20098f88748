"""`python -m harness.diagrams`: write the graphs' diagrams into docs/architecture.md anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from graph_impl import chat, companion, ops, pipeline, session

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
HEADING = "## The graphs"


def diagrams() -> str:
    """Return the section: each graph as Mermaid, every conditional edge with its targets."""
    graphs: dict[str, CompiledStateGraph[Any, Any, Any, Any]] = {
        "chat": chat.GRAPH,
        "companion": companion.GRAPH,
        "session": session.GRAPH,
        "pipeline": pipeline.GRAPH,
        "ops": ops.GRAPH,
    }
    drawn = [
        f"### {name}\n\n```mermaid\n{graph.get_graph().draw_mermaid().strip()}\n```\n"
        for name, graph in graphs.items()
    ]
    return "\n".join([f"{HEADING}\n", *drawn])


if __name__ == "__main__":
    before, _, _ = PAGE.read_text("utf-8").partition(HEADING)
    PAGE.write_text(before + diagrams(), "utf-8")
