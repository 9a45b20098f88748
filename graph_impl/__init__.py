"""The graph stack: LangGraph graphs, as LangGraph's own documentation writes them."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from cutover import Stack
from graph_impl import chat, companion, ops, pipeline, session

_FLOWS = {
    "chat": chat,
    "companion": companion,
    "session": session,
    "pipeline": pipeline,
    "ops": ops,
}
STACKS: Mapping[str, Stack] = {name: flow.stack for name, flow in _FLOWS.items()}
"""The flows by name."""

GRAPHS: Mapping[str, CompiledStateGraph[Any, Any, Any, Any]] = {
    name: flow.GRAPH for name, flow in _FLOWS.items()
}
"""Their graphs, as Studio opens them and the documents draw them."""

__all__ = ["GRAPHS", "STACKS"]
