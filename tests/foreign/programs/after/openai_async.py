"""The OpenAI SDK, asynchronous, streamed."""

from collections.abc import AsyncIterator

import httpx2
from openai import AsyncOpenAI

from cutover import Request, TapeTransport
from tests.support.ask import Ask, Done, Options, Said

client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = await client.chat.completions.create(
        model="sim-chat", messages=[{"role": "user", "content": question}], stream=True
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
