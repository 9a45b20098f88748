"""Agents of an old application, which save the threads of their conversations."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel


class Appended(TypedDict, total=False):
    """The state of an agent whose messages have no ids: they are only ever appended."""

    messages: Annotated[list[Any], operator.add]
    user_id: str


class Managed(TypedDict, total=False):
    """The state of an agent whose messages get ids, and can be removed."""

    said: Annotated[list[AnyMessage], add_messages]
    owner: str
    plan: Plan


class Plan(BaseModel):
    """Something of the application's own, which cannot be imported here."""

    steps: list[str] = []


@asynccontextmanager
async def agent(state: type, address: str) -> AsyncIterator[Any]:
    """Open an agent that only keeps its state; gives how a turn of it is run."""
    opened: Any = AsyncSqliteSaver.from_conn_string(address.removeprefix("sqlite:///"))
    if address.startswith("postgresql"):
        opened = AsyncPostgresSaver.from_conn_string(address)
    async with opened as saver:
        await saver.setup()
        graph: StateGraph[Any, None, Any, Any] = StateGraph(state)
        graph.add_node("agent", lambda _: {})
        graph.add_edge(START, "agent")
        compiled = graph.compile(checkpointer=saver)

        async def run(thread: str, **values: object) -> None:
            await compiled.ainvoke(values, {"configurable": {"thread_id": thread}})

        yield run
