"""The graph stack: each flow as a LangGraph graph with PromptTemplate prompts.

The same flows as in `legacy`, with the same bytes on the wire and the same effects on the tape.
`engine` alone runs a graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from contract.flow import CallBreaker, Flow, OpenedFlows
from graph_impl import chat, companion, engine, session
from graph_impl.threads import opened_threads

FLOWS: Mapping[str, Flow] = {
    "chat": chat.chat(),
    "companion": companion.companion(),
    "session": session.session(),
}
"""The flows, with threads stored nowhere."""


@asynccontextmanager
async def opened(address: str, breaker: CallBreaker | None = None) -> AsyncIterator[OpenedFlows]:
    """Open the store of threads at an address, and yield the flows on it."""
    async with opened_threads(address, breaker) as threads:
        flows = {**FLOWS, "session": session.session(threads=threads)}
        yield OpenedFlows(flows, threads.forget)


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
        case "session":
            graphs = {"session": session.build()}
        case _:
            graphs = {}
    return {title: engine.mermaid(graph) for title, graph in graphs.items()}


__all__ = ["FLOWS", "describe", "opened"]
