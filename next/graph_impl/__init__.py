"""The graph stack: LangGraph graphs, as LangGraph's own documentation writes them."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from cutover import Stack
from graph_impl import chat, companion, ops, pipeline, session

STACKS: Mapping[str, Stack] = {
    "chat": chat.stack,
    "companion": companion.stack,
    "ops": ops.stack,
    "pipeline": pipeline.stack,
    "session": session.stack,
}
"""The flows by name."""

GRAPHS: Mapping[str, CompiledStateGraph[Any, Any, Any, Any]] = {
    "chat": chat.GRAPH,
    "companion": companion.GRAPH,
    "session": session.GRAPH,
    "pipeline": pipeline.GRAPH,
    "ops": ops.GRAPH,
}
"""Their graphs, as Studio opens them and the documents draw them."""

__all__ = ["GRAPHS", "STACKS"]
