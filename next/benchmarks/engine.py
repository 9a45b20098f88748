"""The figures that the documents give for LangGraph: compiling, a node, a checkpoint."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from graph_impl import chat

NODES = 6


class _State(TypedDict):
    number: int


def _graph() -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(_State)

    async def node(state: _State) -> dict[str, Any]:
        return {"number": state["number"] + 1}

    names = [f"node_{number}" for number in range(NODES)]
    for name in names:
        graph.add_node(name, node)
    for before, after in zip((START, *names), (*names, END), strict=True):
        graph.add_edge(before, after)
    return graph


def _median_ms(work: Callable[[], object], count: int = 30) -> float:
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


async def _run_ms(app: Any, count: int = 60) -> float:
    spent = []
    for number in range(count):
        began = time.perf_counter()
        await app.ainvoke({"number": 0}, {"configurable": {"thread_id": str(number)}})
        spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent)


def figures(say: Callable[[str], None] = print) -> None:
    """Measure and print the figures."""
    say(f"compiling the chat graph: {_median_ms(chat.builder.compile):.2f} ms (50 ms)")

    async def measure() -> None:
        plain = await _run_ms(_graph().compile())
        say(f"a node: {plain / NODES:.2f} ms (1 to 2 ms)")
        with tempfile.TemporaryDirectory() as folder:
            async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "c.db")) as saver:
                saved = await _run_ms(_graph().compile(checkpointer=saver))
        # One checkpoint for the input, and one a node.
        say(f"a checkpoint on SQLite: {(saved - plain) / (NODES + 1):.2f} ms (5 ms)")

    asyncio.run(measure())
