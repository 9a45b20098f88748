"""The five graphs for LangGraph's own server: `langgraph dev` finds them through langgraph.json.

The server has its own checkpointer and store; the world that effects act on is opened when the
first graph is asked for, and stays open as long as the process.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from graph_impl import chat as chat_graph
from graph_impl import companion as companion_graph
from graph_impl import ops as ops_graph
from graph_impl import pipeline as pipeline_graph
from graph_impl import session as session_graph
from harness import root
from harness.config import load

Graph = CompiledStateGraph[Any, Any, Any, Any]

_open = AsyncExitStack()
_opening = asyncio.Lock()
_opened: list[object] = []


async def _world() -> None:
    """Open the world of `cutover.toml`, or of the file that CUTOVER_CONFIG names, once."""
    async with _opening:
        if not _opened:
            named = Path(os.environ.get("CUTOVER_CONFIG", "cutover.toml"))
            settings = await asyncio.to_thread(lambda: load(named if named.exists() else None))
            _opened.append(await _open.enter_async_context(root.opened(settings)))


async def chat() -> Graph:
    """Return the chat graph."""
    await _world()
    return chat_graph.GRAPH


async def companion() -> Graph:
    """Return the companion graph."""
    await _world()
    return companion_graph.GRAPH


async def session() -> Graph:
    """Return the session graph."""
    await _world()
    return session_graph.GRAPH


async def pipeline() -> Graph:
    """Return the pipeline graph."""
    await _world()
    return pipeline_graph.GRAPH


async def ops() -> Graph:
    """Return the ops graph."""
    await _world()
    return ops_graph.GRAPH
