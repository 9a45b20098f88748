"""The graph stack: each flow as a LangGraph graph with PromptTemplate prompts.

The same flows as in `legacy`, with the same bytes on the wire and the same effects on the tape.
`engine` alone runs a graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from contract.flow import CallBreaker, Flow, OpenedFlows
from graph_impl import chat, companion, engine, ops, pipeline, session
from graph_impl.saved_threads import saved_threads
from graph_impl.templates import FOLDER
from graph_impl.threads import opened_threads

_BUILDERS: Mapping[str, Callable[[Path], Flow]] = {
    "chat": chat.chat,
    "companion": companion.companion,
    "ops": ops.ops,
    "pipeline": pipeline.pipeline,
    "session": session.session,
}
"""Builders of the flows; each takes the folder of its prompts."""
_GRAPHS: Mapping[str, Mapping[str, Callable[[], engine.Graph]]] = {
    "chat": {"chat": chat.build},
    "companion": {
        "companion messages": companion.build_messages,
        "companion pictures": companion.build_pictures,
    },
    "ops": {"ops": ops.build, "ops deployment": ops.build_deployment},
    "pipeline": {"pipeline": pipeline.build},
    "session": {"session": session.build},
}

FLOWS: Mapping[str, Flow] = {name: build(FOLDER) for name, build in _BUILDERS.items()}
"""The flows, with threads stored nowhere."""


def with_prompts(folders: Mapping[str, Path]) -> Mapping[str, Flow]:
    """Build the flows that read their prompts from folders of their own.

    Raises `PromptRefused`.
    """
    return {name: build(folders[name]) for name, build in _BUILDERS.items() if name in folders}


@asynccontextmanager
async def opened(
    address: str,
    breaker: CallBreaker | None = None,
    prompts: Mapping[str, Path] | None = None,
) -> AsyncIterator[OpenedFlows]:
    """Open the store of threads at an address, and yield the flows on it.

    `prompts` are folders of prompts by flow. Raises `PromptRefused`.
    """
    folders = dict(prompts or {})
    async with opened_threads(address, breaker) as threads:
        stored = session.session(folders.pop("session", FOLDER), threads)
        yield OpenedFlows({**FLOWS, **with_prompts(folders), "session": stored}, threads.forget)


def describe(flow: str) -> Mapping[str, str]:
    """Return the graphs of a flow as Mermaid text, by title."""
    return {title: engine.mermaid(build()) for title, build in _GRAPHS.get(flow, {}).items()}


__all__ = ["FLOWS", "describe", "opened", "saved_threads", "with_prompts"]
