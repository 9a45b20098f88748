"""The OpenAI SDK, blocking, in a coroutine: the whole process waits while it reads."""

from collections.abc import AsyncIterator

import httpx2
from openai import OpenAI

from cutover import Request, TapeTransport
from tests.support.ask import Ask, Done, Options, Said

client = OpenAI(http_client=httpx2.Client(transport=TapeTransport()))


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = client.chat.completions.create(
        model="sim-chat", messages=[{"role": "user", "content": question}], stream=True
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def stack(request: Request[Ask, Options]) -> AsyncIterator[Said | Done]:
    """Answer a question of the flow."""
    async for text in answer(request.body.text):
        yield Said(text)
    yield Done()
