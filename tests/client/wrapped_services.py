"""Two services of others: FastAPI with the openai SDK, LangGraph with ChatOpenAI.

Both are wrapped in this process, with a line for each client of the model. Beside them is a flow
that is written for the router's ports.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from openai import AsyncOpenAI
from pydantic import SecretStr

from contract.model import ModelCall, SystemMessage, UserMessage
from contract.ports import Effects
from cutover_client import CutoverTransport, effect, wrap_app

SYSTEM = "You are kind."
PLANTED = "Please be kind."
"""What later code says to the model instead."""
PROVIDER, SAYS = "WRAPPED_PROVIDER", "WRAPPED_SAYS"
done: list[str] = []
"""What the services have really done."""
broken: list[int] = []
"""After how many pieces of text the graph crashes, once."""


@effect("orders.insert")
async def insert(order: str) -> int:
    """Insert an order."""
    done.append(order)
    return len(done)


def event(**fields: object) -> str:
    """Write an event."""
    return f"data: {json.dumps(fields)}\n\n"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the clients of both services."""
    url, key = os.environ[PROVIDER], "none"
    http = httpx2.AsyncClient(transport=CutoverTransport())
    async with http, AsyncOpenAI(api_key=key, base_url=url, http_client=http) as client:
        app.state.client = client
        app.state.graph = graph_of(
            ChatOpenAI(model="m", api_key=SecretStr(key), base_url=url, http_async_client=http)
        )
        done.append("opened")
        yield
    done.append("closed")


def graph_of(model: ChatOpenAI) -> Any:
    """Compile a graph of one node."""

    async def reply(state: MessagesState) -> dict[str, Any]:
        system = ("system", os.environ.get(SAYS, SYSTEM))
        return {"messages": [await model.ainvoke([system, *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    return graph.compile()


app = FastAPI(lifespan=lifespan)


@app.post("/old")
async def old(request: Request) -> StreamingResponse:
    """Answer by hand."""
    body = await request.json()

    async def events() -> AsyncIterator[str]:
        messages: Any = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": body["message"]},
        ]
        number = await insert(body["message"])
        yield event(type="order", number=number)
        chunks = await app.state.client.chat.completions.create(
            model="m", messages=messages, stream=True
        )
        async for chunk in chunks:
            if chunk.choices and (said := chunk.choices[0].delta.content):
                yield event(type="text", text=said)
        yield event(type="done")

    return StreamingResponse(events(), media_type="text/event-stream")


@app.post("/new")
async def new(body: dict[str, str]) -> StreamingResponse:
    """Answer by a graph."""

    async def events() -> AsyncIterator[str]:
        number = await insert(body["message"])
        yield event(type="order", number=number)
        asked = {"messages": [("user", body["message"])]}
        pieces = 0
        async for message, _ in app.state.graph.astream(asked, stream_mode="messages"):
            if said := message.content:
                yield event(type="text", text=said)
                pieces += 1
                if broken == [pieces]:
                    broken.clear()
                    raise RuntimeError(said)
        yield event(type="done")

    return StreamingResponse(events(), media_type="text/event-stream")


async def by_ports(asked: Any, effects: Effects) -> AsyncIterator[dict[str, Any]]:
    """Answer through the router's own port of the model."""
    message = asked.body["message"]
    yield {"type": "order", "number": await insert(message)}
    call = ModelCall(model_id="m", messages=(SystemMessage(SYSTEM), UserMessage(message)))
    async for chunk in effects.model.stream("reply", call):
        if chunk.text:
            yield {"type": "text", "text": chunk.text}
    yield {"type": "done"}


PORTS = {"support": by_ports}
OLD = {"support": wrap_app(app, path="/old")}
NEW = {"support": wrap_app(app, path="/new")}
