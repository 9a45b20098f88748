"""The OpenAI SDK, asynchronous, streamed."""

from collections.abc import AsyncIterator

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = await client.chat.completions.create(
        model="sim-chat", messages=[{"role": "user", "content": question}], stream=True
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content
