"""A service behind an address that asks its model through the gateway, with OpenAI's client."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openai import APIError, AsyncOpenAI

from tests.support.scripted_service import Asked, Stream


@dataclass
class AskingService:
    """Streams what its model says as events of the chat flow; honest where the model fails.

    `model` is the called one, `in_pieces` how. `codes` are those of what its client raised.
    """

    client: AsyncOpenAI | None = None
    model: str = "m"
    in_pieces: bool = True
    codes: list[str | None] = field(default_factory=list)

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request of the router."""
        await stream.head()
        await stream.send(_frame("ACCEPT"), _frame("START_REPLY"))
        try:
            told = await (self._pieces if self.in_pieces else self._whole)(asked, stream)
        except APIError as error:
            self.codes.append(error.code)
            await stream.send(_frame("FAILED", code=error.code))
        else:
            await stream.send(_frame("SUCCESS", **told))
        await stream.send(_frame("END"))
        await stream.end()

    def _question(self, asked: Asked) -> dict[str, Any]:
        names = ("x-cutover-exchange", "x-cutover-role")
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": json.loads(asked.body)["content"]}],
            "extra_headers": {name: asked.header(name)[0] for name in names},
        }

    async def _pieces(self, asked: Asked, stream: Stream) -> dict[str, Any]:
        assert self.client is not None
        answer = await self.client.chat.completions.create(
            **self._question(asked), stream=True, stream_options={"include_usage": True}
        )
        said, model, tokens = "", "", 0
        async for chunk in answer:
            model = chunk.model or model
            with suppress(AttributeError):
                tokens = chunk.usage.total_tokens
            for choice in chunk.choices:
                if choice.delta.content:
                    said += choice.delta.content
                    await stream.send(_frame("SEND", content=choice.delta.content))
        return {"content": said, "model": model, "tokens": tokens}

    async def _whole(self, asked: Asked, stream: Stream) -> dict[str, Any]:
        assert self.client is not None
        answer = await self.client.chat.completions.create(**self._question(asked))
        said = answer.choices[0].message.content or ""
        await stream.send(_frame("SEND", content=said))
        tokens = answer.usage.total_tokens if answer.usage else 0
        return {"content": said, "model": answer.model, "tokens": tokens}


def _frame(step: str, **more: object) -> bytes:
    return b"data: " + json.dumps({"step": step, **more}).encode() + b"\n\n"
