"""The graph stack: each flow as a LangGraph graph with PromptTemplate prompts.

The same flows as in `legacy`, with the same bytes on the wire and the same effects on the tape.
`engine` alone runs a graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from contract.flow import CallBreaker, Flow, OpenedFlows
from graph_impl import chat, companion, engine, pipeline, session
from graph_impl.templates import FOLDER
from graph_impl.threads import opened_threads

FLOWS: Mapping[str, Flow] = {
    "chat": chat.chat(),
    "companion": companion.companion(),
    "pipeline": pipeline.pipeline(),
    "session": session.session(),
}
"""The flows, with threads stored nowhere."""


_WITH_PROMPTS: Mapping[str, Callable[[Path], Flow]] = {
    "chat": chat.chat,
    "companion": companion.companion,
    "pipeline": pipeline.pipeline,
    "session": session.session,
}


def with_prompts(folders: Mapping[str, Path]) -> Mapping[str, Flow]:
    """Build the flows that read their prompts from folders of their own.

    Raises `PromptRefused`.
    """
    return {name: build(folders[name]) for name, build in _WITH_PROMPTS.items() if name in folders}


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
    match flow:
        case "chat":
            graphs = {"chat": chat.build()}
        case "companion":
            graphs = {
                "companion messages": companion.build_messages(),
                "companion pictures": companion.build_pictures(),
            }
        case "pipeline":
            graphs = {"pipeline": pipeline.build()}
        case "session":
            graphs = {"session": session.build()}
        case _:
            graphs = {}
    return {title: engine.mermaid(graph) for title, graph in graphs.items()}


__all__ = ["FLOWS", "describe", "opened", "with_prompts"]
