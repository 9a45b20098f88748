"""The graph stack: LangGraph graphs, as LangGraph's own documentation writes them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cutover import Request, Stack, wrap_graph
from effects.world import current
from graph_impl import chat, companion, ops, pipeline, session


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
    "companion": wrap_graph(
        companion.GRAPH,
        inputs=_inputs,
        events=companion.events,
        modes=("messages", "custom"),
        config=lambda _: {
            "configurable": {"thread_id": "run"},
            "recursion_limit": companion.MOST_STEPS,
        },
        context=lambda request: companion.CompanionContext(msgspec.to_builtins(request.options)),
        answer=companion.answer,
    ),
    "ops": wrap_graph(
        ops.GRAPH,
        inputs=ops.inputs,
        events=ops.events,
        context=lambda request: ops.OpsContext(msgspec.to_builtins(request.options)),
        answer=ops.answer,
    ),
    "pipeline": wrap_graph(
        pipeline.GRAPH,
        inputs=_inputs,
        events=pipeline.events,
        modes=("messages", "custom"),
        context=lambda request: pipeline.PipelineContext(msgspec.to_builtins(request.options)),
    ),
    "session": wrap_graph(
        session.GRAPH,
        inputs=_inputs,
        events=session.events,
        modes=("messages", "custom"),
        config=session.thread,
        context=lambda request: session.SessionContext(msgspec.to_builtins(request.options)),
        saver=lambda: current().threads,
    ),
}
"""The flows by name."""

__all__ = ["STACKS"]
