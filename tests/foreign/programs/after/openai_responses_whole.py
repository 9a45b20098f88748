"""OpenAI's Responses API, answered as a whole, in two turns."""

from collections.abc import AsyncIterator

import httpx2
from openai import AsyncOpenAI

from cutover import Request, TapeTransport
from tests.support.ask import Ask, Done, Options, Said

client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))


async def answer(question: str) -> AsyncIterator[str]:
    """Yield an answer, then what the model makes of it."""
    first = await client.responses.create(model="sim-chat", input=question)
    yield first.output_text
    second = await client.responses.create(model="sim-chat", input=f"Shorter: {first.output_text}")
    yield second.output_text


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
