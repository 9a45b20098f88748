"""The OpenAI SDK, blocking, in a coroutine: the whole process waits while it reads."""

from collections.abc import AsyncIterator

from openai import OpenAI

client = OpenAI()


async def answer(question: str) -> AsyncIterator[str]:
    """Yield the text of an answer as it comes."""
    stream = client.chat.completions.create(
        model="sim-chat", messages=[{"role": "user", "content": question}], stream=True
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content
