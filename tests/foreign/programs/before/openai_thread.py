"""The OpenAI SDK, blocking, read in threads as FastAPI reads a generator."""

from collections.abc import AsyncIterator, Iterator

from openai import OpenAI
from starlette.concurrency import iterate_in_threadpool

client = OpenAI()


def pieces(question: str) -> Iterator[str]:
    """Yield the text of an answer as it comes."""
    stream = client.chat.completions.create(
        model="sim-chat", messages=[{"role": "user", "content": question}], stream=True
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def answer(question: str) -> AsyncIterator[str]:
    """Return the text of an answer as it comes."""
    return iterate_in_threadpool(pieces(question))
