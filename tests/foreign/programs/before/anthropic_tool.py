"""The Anthropic SDK's stream with a tool, and the loop around them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from anthropic import AsyncAnthropic

client = AsyncAnthropic()
TOOLS: Any = [{"name": "current_time", "input_schema": {"type": "object", "properties": {}}}]


async def current_time() -> str:
    """Return the time."""
    return datetime.now(UTC).isoformat()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes, over rounds of tool calls."""
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        async with client.messages.stream(
            model="claude-sim", max_tokens=1024, messages=messages, tools=TOOLS
        ) as stream:
            async for text in stream.text_stream:
                yield text
            message = await stream.get_final_message()
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": await current_time()}
            for block in message.content
            if block.type == "tool_use"
        ]
        if not results:
            return
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results},
        ]
