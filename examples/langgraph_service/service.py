"""The kitchen assistant, in LangGraph: `uvicorn service:app --port 9002`.

It orders at the shop's MCP server.
"""

import ast
import json
import logging
import operator
import os
from collections.abc import AsyncIterator, Callable

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from mcp import Client
from openai import OpenAIError
from pydantic import BaseModel

log = logging.getLogger("uvicorn.error")

PROMPT = """You are the assistant of a cooking school.
Answer in the language of the question, in at most five sentences.
Use the tools for every sum and every weight. Never guess what a picture does not show."""
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
GRAMS = {"g": 1.0, "kg": 1000.0, "oz": 28.3495, "lb": 453.592}


SHOP = os.environ.get("SHOP_SERVER", "http://127.0.0.1:9100/mcp")


@tool
async def order(item: str, grams: int) -> str:
    """Order an ingredient from the school's shop."""
    async with Client(SHOP) as shop:
        done = await shop.call_tool("order", {"item": item, "grams": grams})
    return "".join(part.text for part in done.content if part.type == "text")


@tool
def calculate(expression: str) -> str:
    """Work out a sum, such as 12 * 7."""
    try:
        return f"{value_of(ast.parse(expression, mode='eval').body):g}"
    except (ArithmeticError, SyntaxError, LookupError):
        return "this is no sum"


@tool
def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a weight between g, kg, oz and lb."""
    try:
        return f"{value * GRAMS[from_unit] / GRAMS[to_unit]:.2f} {to_unit}"
    except KeyError:
        return "I know g, kg, oz and lb only"


def value_of(node: ast.expr) -> float:
    """Return the value of a part of a sum."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp():
            return OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
        case _:
            raise LookupError


TOOLS = [calculate, convert_units, order]
model = ChatOpenAI(
    model="gpt-4.1-mini",
    temperature=0,
    max_tokens=600,
).bind_tools(TOOLS)


async def ask(state: MessagesState) -> MessagesState:
    """Ask the model; what it says joins the conversation."""
    prompt = [SystemMessage(PROMPT), *state["messages"]]
    reply = await model.ainvoke(prompt)
    return {"messages": [reply]}


steps = StateGraph(MessagesState)
steps.add_node("ask", ask)
steps.add_node("tools", ToolNode(TOOLS))
steps.add_edge(START, "ask")
steps.add_conditional_edges("ask", tools_condition)
steps.add_edge("tools", "ask")
graph = steps.compile(checkpointer=InMemorySaver())

app = FastAPI()


class Question(BaseModel):
    """What the client asks; a picture is a data URL."""

    conversation_id: str
    message: str
    picture: str | None = None


@app.post("/api/assistant")
async def assistant(question: Question) -> StreamingResponse:
    """Stream the answer to a question."""
    config: RunnableConfig = {
        "configurable": {
            "thread_id": question.conversation_id,
        }
    }
    return StreamingResponse(answer(question, config), media_type="text/event-stream")


async def answer(question: Question, config: RunnableConfig) -> AsyncIterator[str]:
    """Run the graph; texts are sent as they come, and the names of the tools it calls."""
    inputs: MessagesState = {"messages": [message_of(question)]}
    try:
        async for mode, part in graph.astream(inputs, config, stream_mode=["messages", "updates"]):
            match mode, part:
                case "messages", (AIMessageChunk(text=text), _) if text:
                    yield event("token", text=text)
                case "updates", {"ask": {"messages": [AIMessage(tool_calls=calls)]}}:
                    for call in calls:
                        yield event("tool", tool=call["name"])
                case _:
                    pass
        yield event("done")
    except OpenAIError:
        log.exception("the model did not answer")
        yield event("error", code="no_answer")


def message_of(question: Question) -> HumanMessage:
    """Return a question as the model is asked it."""
    if question.picture is None:
        return HumanMessage(question.message)
    picture = {"type": "image_url", "image_url": {"url": question.picture}}
    return HumanMessage([{"type": "text", "text": question.message}, picture])


def event(name: str, **data: str) -> str:
    """Return an event of the stream."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
