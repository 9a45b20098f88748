"""A LangChain model with a tool, and the loop around them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def current_time() -> str:
    """Return the time."""
    return datetime.now(UTC).isoformat()


model = ChatOpenAI(model="sim-chat").bind_tools([current_time])


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes, over rounds of tool calls."""
    messages: list[BaseMessage] = [HumanMessage(question)]
    while True:
        whole: Any = None
        async for chunk in model.astream(messages):
            whole = chunk if whole is None else whole + chunk
            if chunk.text:
                yield chunk.text
        if whole is None or not whole.tool_calls:
            return
        messages.append(whole)
        messages += [await current_time.ainvoke(call) for call in whole.tool_calls]
