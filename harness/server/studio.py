"""The five graphs for LangGraph's own server: `langgraph dev` finds them through langgraph.json.

The server has its own checkpointer and store; `app` opens the world that effects act on, once, and
closes it when the server ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.graph.state import CompiledStateGraph
from starlette.applications import Starlette

from graph_impl import GRAPHS
from harness import root
from harness.builtin import completed
from harness.config import Settings, load

Graph = CompiledStateGraph[Any, Any, Any, Any]

_opened = asyncio.Event()


def settings() -> Settings:
    """Read the file that CUTOVER_CONFIG names, or `cutover.toml` where there is one.

    Raises `ConfigRefused`, also where the file that is named does not exist.
    """
    named = os.environ.get("CUTOVER_CONFIG", "")
    path = Path(named or "cutover.toml")
    return load(path if named or path.exists() else None)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Keep the world open while the server runs."""
    found = await asyncio.to_thread(settings)
    async with root.stores(found) as stores, completed(stores, found):
        _opened.set()
        try:
            yield
        finally:
            _opened.clear()


app = Starlette(lifespan=lifespan)


def _in_the_world(name: str) -> Callable[[], Awaitable[Graph]]:
    """Return what the server calls for a graph: one run waits until the world is open.

    The server runs what it kept from its last life before it opens `app`.
    """

    async def opened() -> Graph:
        await _opened.wait()
        return GRAPHS[name]

    return opened


chat = _in_the_world("chat")
companion = _in_the_world("companion")
session = _in_the_world("session")
pipeline = _in_the_world("pipeline")
ops = _in_the_world("ops")
