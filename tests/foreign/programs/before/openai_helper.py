"""The OpenAI SDK's `stream()` helper, which puts the answer together by itself."""

from collections.abc import AsyncIterator

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    async with client.chat.completions.stream(
        model="sim-chat", messages=[{"role": "user", "content": question}]
    ) as stream:
        async for event in stream:
            if event.type == "content.delta":
                yield event.delta
