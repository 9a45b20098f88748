"""OpenAI's Responses API, streamed."""

from collections.abc import AsyncIterator

import httpx2
from openai import AsyncOpenAI

from cutover import Request, TapeTransport
from tests.support.ask import Ask, Done, Options, Said

client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = await client.responses.create(model="sim-chat", input=question, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            yield event.delta


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
