"""OpenAI's Responses API, streamed."""

from collections.abc import AsyncIterator

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = await client.responses.create(model="sim-chat", input=question, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            yield event.delta
