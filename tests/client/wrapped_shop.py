"""A shop's assistant for routers that are killed: a compiled graph, and an application.

Whatever either does is a line of the file that `DONE` names, written before it is done.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from cutover_client import EffectInDoubt, effect, wrap_app, wrap_graph

DONE = "WRAPPED_SHOP_DONE"
SLOW = "slow"
"""In the name of goods: their payment never ends."""


def do(what: str) -> None:
    """Do something that cannot be undone."""
    with Path(os.environ[DONE]).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@effect("orders.insert")
async def insert(goods: str) -> str:
    """Order."""
    do(f"order {goods}")
    return f"ordered {goods}"


@effect("payments.make")
async def pay(goods: str) -> str:
    """Pay, which takes until the process is killed where the goods are slow."""
    do(f"pay {goods}")
    if SLOW in goods:
        await asyncio.Event().wait()
    return f"paid {goods}"


@effect("mails.send")
async def send(goods: str) -> str:
    """Write to the customer."""
    do(f"mail {goods}")
    return f"mailed {goods}"


async def settled(goods: str) -> AsyncIterator[str]:
    """Pay and write, and say what came of it."""
    try:
        yield await pay(goods)
    except EffectInDoubt:
        yield f"in doubt {goods}"
    yield await send(goods)


class State(TypedDict, total=False):
    """What the graph knows."""

    goods: str
    asks: bool


async def order(state: State) -> State:
    """Order and, where the customer is to agree, ask."""
    get_stream_writer()(text(await insert(state["goods"])))
    if state["asks"]:
        interrupt(state["goods"])
    return {}


async def settle(state: State) -> State:
    """Pay and write."""
    async for said in settled(state["goods"]):
        get_stream_writer()(text(said))
    return {}


def text(said: str) -> dict[str, str]:
    """Return an event of text."""
    return {"type": "text", "text": f"{said}; "}


steps = StateGraph(State)
steps.add_sequence([order, settle])
steps.add_edge(START, "order")
app = FastAPI()


@app.post("/shop")
async def shop(request: Request) -> StreamingResponse:
    """Do what the graph does, without asking."""
    body = await request.json()

    async def events() -> AsyncIterator[str]:
        yield written(text(await insert(body["goods"])))
        async for said in settled(body["goods"]):
            yield written(text(said))
        yield written({"type": "done"})

    return StreamingResponse(events(), media_type="text/event-stream")


def written(event: dict[str, Any]) -> str:
    """Write an event."""
    return f"data: {json.dumps(event)}\n\n"


GRAPH = {
    "shop": wrap_graph(
        steps.compile(),
        input=lambda body: {"goods": body["goods"], "asks": body.get("asks", False)},
        question=lambda id, value: {"type": "question", "id": id, "value": value},  # noqa: A006
        end=lambda _: {"type": "done"},
    )
}
APP = {"shop": wrap_app(app, path="/shop")}
