"""The OpenAI SDK's `stream()` helper, which puts the answer together by itself."""

from collections.abc import AsyncIterator

import httpx2
from openai import AsyncOpenAI

from cutover import Request, TapeTransport
from tests.support.ask import Ask, Done, Options, Said

client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    async with client.chat.completions.stream(
        model="sim-chat", messages=[{"role": "user", "content": question}]
    ) as stream:
        async for event in stream:
            if event.type == "content.delta":
                yield event.delta


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
