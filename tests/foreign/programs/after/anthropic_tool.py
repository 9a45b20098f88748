"""The Anthropic SDK's stream with a tool, and the loop around them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
from anthropic import AsyncAnthropic

from cutover import Request, TapeTransport, effect
from tests.support.ask import Ask, Done, Options, Said

client = AsyncAnthropic(http_client=httpx2.AsyncClient(transport=TapeTransport()))
TOOLS: Any = [{"name": "current_time", "input_schema": {"type": "object", "properties": {}}}]


@effect("clock.time")
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


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
