"""OpenAI's Responses API, answered as a whole, in two turns."""

from collections.abc import AsyncIterator

from openai import AsyncOpenAI

client = AsyncOpenAI()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield an answer, then what the model makes of it."""
    first = await client.responses.create(model="sim-chat", input=question)
    yield first.output_text
    second = await client.responses.create(model="sim-chat", input=f"Shorter: {first.output_text}")
    yield second.output_text
