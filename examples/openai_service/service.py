"""The kitchen assistant, with the openai SDK: `uvicorn service:app --port 9001`.

It writes orders into the shop's database.
"""

import ast
import asyncio
import json
import logging
import operator
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI, OpenAIError
from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, String, Table, insert
from sqlalchemy.ext.asyncio import create_async_engine

log = logging.getLogger("uvicorn.error")

PROMPT = """You are the assistant of a cooking school.
Answer in the language of the question, in at most five sentences.
Use the tools for every sum and every weight. Never guess what a picture does not show."""
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "Work out a sum, such as 12 * 7.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "convert_units",
            "description": "Convert a weight between g, kg, oz and lb.",
            "parameters": {
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "from_unit": {"type": "string"},
                    "to_unit": {"type": "string"},
                },
                "required": ["value", "from_unit", "to_unit"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "order",
            "description": "Order an ingredient from the school's shop.",
            "parameters": {
                "type": "object",
                "properties": {
                    "item": {"type": "string"},
                    "grams": {"type": "integer"},
                },
                "required": ["item", "grams"],
            },
        },
    },
]
ROUNDS = 8
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
GRAMS = {"g": 1.0, "kg": 1000.0, "oz": 28.3495, "lb": 453.592}

engine = create_async_engine(f"sqlite+aiosqlite:///{os.environ.get('SHOP_FILE', 'shop.sqlite')}")
tables = MetaData()
orders = Table(
    "orders",
    tables,
    Column("id", Integer, primary_key=True),
    Column("item", String, nullable=False),
    Column("grams", Integer, nullable=False),
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Create the table of orders where there is none."""
    async with engine.begin() as connection:
        await connection.run_sync(tables.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
client = AsyncOpenAI()
conversations: defaultdict[str, list[Any]] = defaultdict(list)


class Question(BaseModel):
    """What the client asks; a picture is a data URL."""

    conversation_id: str
    message: str
    picture: str | None = None


@app.post("/api/assistant")
async def assistant(question: Question) -> StreamingResponse:
    """Stream the answer to a question."""
    messages = conversations[question.conversation_id]
    messages.append({"role": "user", "content": content_of(question)})
    return StreamingResponse(
        answer(messages),
        media_type="text/event-stream",
    )


async def answer(messages: list[Any]) -> AsyncIterator[str]:
    """Ask the model until it calls no more tools; the conversation grows with every message."""
    try:
        for _ in range(ROUNDS):
            stream = await client.chat.completions.create(
                model="gpt-4.1-mini",
                messages=[{"role": "system", "content": PROMPT}, *messages],
                tools=TOOLS,
                tool_choice="auto",
                temperature=0,
                max_tokens=600,
                stream=True,
            )
            text = ""
            calls: dict[int, dict[str, str]] = {}
            async for chunk in stream:
                delta = chunk.choices[0].delta
                if delta.content:
                    text += delta.content
                    yield event("token", text=delta.content)
                for piece in delta.tool_calls or []:
                    call = calls.setdefault(
                        piece.index, {"id": piece.id or "", "name": "", "arguments": ""}
                    )
                    if piece.function is not None:
                        call["name"] += piece.function.name or ""
                        call["arguments"] += piece.function.arguments or ""
            messages.append(said(text, list(calls.values())))
            if not calls:
                break
            for call in calls.values():
                yield event("tool", tool=call["name"])
                result = await run(call["name"], json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        yield event("done")
    except OpenAIError:
        log.exception("the model did not answer")
        yield event("error", code="no_answer")


def content_of(question: Question) -> Any:
    """Return a question as the model is asked it."""
    if question.picture is None:
        return question.message
    picture = {"type": "image_url", "image_url": {"url": question.picture}}
    return [{"type": "text", "text": question.message}, picture]


def said(text: str, calls: list[dict[str, str]]) -> dict[str, Any]:
    """Return what the model said as a message of the conversation."""
    if not calls:
        return {"role": "assistant", "content": text}
    functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
    tool_calls = [
        {"id": call["id"], "type": "function", "function": function}
        for call, function in zip(calls, functions, strict=True)
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}


async def run(name: str, arguments: dict[str, Any]) -> str:
    """Run a tool."""
    match name:
        case "order":
            return await order(**arguments)
        case "calculate":
            return calculate(**arguments)
        case "convert_units":
            return convert_units(**arguments)
        case _:
            return f"there is no tool {name}"


async def order(item: str, grams: int) -> str:
    """Order an ingredient from the school's shop."""
    # A client that leaves in the middle must not leave the database locked.
    number = await asyncio.shield(inserted(item, grams))
    log.info("order %d: %d g of %s", number, grams, item)
    return f"order {number}: {grams} g of {item}"


async def inserted(item: str, grams: int) -> int:
    """Insert an order; returns its number."""
    async with engine.begin() as connection:
        new = insert(orders).values(item=item, grams=grams).returning(orders.c.id)
        number: int = (await connection.execute(new)).scalar_one()
        return number


def calculate(expression: str) -> str:
    """Work out a sum."""
    try:
        return f"{value_of(ast.parse(expression, mode='eval').body):g}"
    except (ArithmeticError, SyntaxError, LookupError):
        return "this is no sum"


def value_of(node: ast.expr) -> float:
    """Return the value of a part of a sum."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp():
            return OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
        case _:
            raise LookupError


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a weight."""
    try:
        return f"{value * GRAMS[from_unit] / GRAMS[to_unit]:.2f} {to_unit}"
    except KeyError:
        return "I know g, kg, oz and lb only"


def event(name: str, **data: str) -> str:
    """Return an event of the stream."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
