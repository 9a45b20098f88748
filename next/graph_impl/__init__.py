"""The graph stack: LangGraph graphs, as LangGraph's own documentation writes them."""

from collections.abc import Mapping

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

__all__ = ["STACKS"]
