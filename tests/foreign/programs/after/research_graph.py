"""A graph as public projects write them: saver, store, fan-out, tools, a subgraph, a question."""

import operator
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx2
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Send, interrupt

from cutover import Request, TapeTransport, effect, wrap_graph
from tests.support.ask import Ask, Asked, Done, Noted, Options, Said, human_answer


class State(MessagesState):
    """The conversation, and what was looked up for the last question."""

    found: Annotated[list[str], operator.add]


@tool
@effect("clock.time")
def current_time() -> str:
    """Return the time."""
    return datetime.now(UTC).isoformat()


http = httpx2.AsyncClient(transport=TapeTransport())
model = ChatOpenAI(model="sim-chat", http_async_client=http)


async def recall(state: State, *, store: BaseStore) -> dict[str, Any]:
    """Read what is known of the user, and keep the question."""
    known = await store.asearch(("questions",))
    question = str(state["messages"][-1].content)
    await store.aput(("questions",), f"{len(known)}", {"text": question})
    get_stream_writer()({"known": len(known)})
    return {}


def topics(state: State) -> list[Send]:
    """Send each part of the question to a node of its own."""
    question = str(state["messages"][-1].content)
    return [Send("look", {"topic": part.strip()}) for part in question.split(",")]


async def look(state: dict[str, str]) -> dict[str, Any]:
    """Look up one topic."""
    answer = await model.ainvoke(f"Tell me about {state['topic']}", {"tags": ["nostream"]})
    return {"found": [answer.text[:40]]}


async def agent(state: State) -> dict[str, Any]:
    """Answer with tools."""
    question = str(state["messages"][-1].content)
    if question.startswith("Approve"):
        get_stream_writer()({"approved": interrupt(question)})
    return {"messages": [await model.bind_tools([current_time]).ainvoke(state["messages"])]}


def count(state: State) -> dict[str, Any]:
    """Report how much was said and found."""
    get_stream_writer()({"said": len(state["messages"]), "found": len(state["found"])})
    return {}


summary = StateGraph(State)
summary.add_node(count)
summary.add_edge(START, "count")

builder = StateGraph(State)
builder.add_node(recall)
builder.add_node(look)
builder.add_node(agent)
builder.add_node("tools", ToolNode([current_time]))
builder.add_node("summary", summary.compile())
builder.add_edge(START, "recall")
builder.add_conditional_edges("recall", topics, ["look"])
builder.add_edge("look", "agent")
builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "summary"})
builder.add_edge("tools", "agent")
graph = builder.compile(checkpointer=InMemorySaver(), store=InMemoryStore())
taped = wrap_graph(graph, answer=human_answer)


async def events(_: Any, parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield the service's events."""
    async for *_, mode, part in parts:
        if mode == "messages" and isinstance(part[0], AIMessageChunk) and part[0].text:
            yield Said(part[0].text)
        if mode == "custom":
            yield Noted(part)
        if mode == "updates" and "__interrupt__" in part:
            yield Asked(part["__interrupt__"][0].value)
    yield Done()


def answer(ask: Ask) -> AsyncIterator[Said | Noted | Asked | Done]:
    """Answer a question in its thread."""
    question: Any = {"messages": [("user", ask.text)]}
    thread: Any = {"configurable": {"thread_id": ask.thread}}
    modes: Any = ["messages", "custom", "updates"]
    return events(ask, taped.astream(question, thread, stream_mode=modes, subgraphs=True))


def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Noted | Asked | Done]:
    """Answer a question of the flow."""
    return answer(request.body)
