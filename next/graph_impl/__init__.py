"""The graph stack: LangGraph graphs, as LangGraph's own documentation writes them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cutover import Request, Stack, wrap_graph
from graph_impl import chat


def _inputs(request: Request[Any, Any]) -> Any:
    return msgspec.to_builtins(request.body)


STACKS: Mapping[str, Stack] = {
    "chat": wrap_graph(
        chat.GRAPH,
        inputs=_inputs,
        events=chat.events,
        modes=("messages", "custom"),
        context=lambda request: chat.ChatContext(msgspec.to_builtins(request.options)),
    ),
}
"""The flows by name."""

__all__ = ["STACKS"]
