"""Callers of the rescuing port, and providers that misbehave for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from contract.errors import Fault
from contract.model import Chunk, Usage
from effects.model import ModelEntry, ModelRegistry, RescuePolicy, RescuingModel
from tests.support.loopback_provider import (
    CALL,
    Answer,
    Loopback,
    Wire,
    registry_of,
    sse,
    until_fault,
)
from tests.support.patience import PATIENCE_S

NO_WAIT = RescuePolicy(first_wait=1.0)
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Heard:
    """What a caller has of an answer; `fault` is None when it is whole."""

    text: str
    reasoning: str = ""
    arguments: str = ""
    model: str = ""
    finish: str = ""
    usage: Usage | None = None
    fault: Fault | None = None


class Caller(Protocol):
    """A caller of model `m`; `waits` are the seconds waited between attempts."""

    model: RescuingModel
    waits: list[float]

    async def ask(self) -> Heard:
        """Ask once, read to the end."""
        ...


@dataclass
class Held:
    """A provider that lets its caller wait; `asked` and `left` tell when that came and went."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, wire: Wire) -> None:
        """Wait until the caller is gone."""
        self.asked.set()
        await wire.gone()
        self.left.set()

    async def until_left(self) -> None:
        """Wait until its caller is gone."""
        async with asyncio.timeout(PATIENCE_S):
            await self.left.wait()


Calling = Callable[[Sequence[ModelEntry], RescuePolicy], AbstractAsyncContextManager[Caller]]


@dataclass
class PortCaller:
    """Asks through the port itself."""

    model: RescuingModel
    waits: list[float] = field(default_factory=list)

    async def ask(self) -> Heard:
        """Ask once, read to the end."""
        return heard(*await until_fault(self.model.stream("reply", CALL)))


@asynccontextmanager
async def rescuing(
    entries: Sequence[ModelEntry], policy: RescuePolicy
) -> AsyncIterator[tuple[ModelRegistry, RescuingModel, list[float]]]:
    """Open a registry and the port on it; its waits are noted instead of waited."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with registry_of(*entries) as registry:
        yield registry, RescuingModel(registry, policy, draw=lambda: 1.0, sleep=sleep), waits


@asynccontextmanager
async def through_the_port(
    entries: Sequence[ModelEntry], policy: RescuePolicy = NO_WAIT
) -> AsyncIterator[PortCaller]:
    """Call through the port."""
    async with rescuing(entries, policy) as (_, model, waits):
        yield PortCaller(model, waits)


def heard(chunks: Sequence[Chunk], fault: Fault | None) -> Heard:
    """Put chunks together; model and usage are those said last, as the recorder takes them."""
    return Heard(
        text="".join(chunk.text for chunk in chunks),
        reasoning="".join(chunk.reasoning for chunk in chunks),
        arguments="".join(delta.arguments for chunk in chunks for delta in chunk.tool_calls),
        model=next((chunk.model for chunk in reversed(chunks) if chunk.model), ""),
        finish="".join(chunk.finish for chunk in chunks),
        usage=next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None),
        fault=fault,
    )


def pair(first: Loopback, second: Loopback, **limits: float) -> list[ModelEntry]:
    """Make model `m` at the first provider, and `spare` at the second as its fallback."""
    entry = replace(first.entry(**limits), fallbacks=("spare",), context_tokens=1_000)
    spare = replace(second.entry(), model_id="spare", model="loop-2")
    named = replace(spare.provider, name="second")
    return [entry, replace(spare, provider=named)]


def saying(
    *texts: str, model: str = "loop-1", then: Answer | None = None, usage: int = 0
) -> Answer:
    """Answer with these texts, then do something else instead of ending well."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        for text in texts:
            await wire.send(sse(said(model, {"content": text})))
        if then is not None:
            await then(wire)
            return
        await wire.send(sse(said(model, {}, finish_reason="stop")))
        if usage:
            await wire.send(sse({**said(model, {}), "choices": [], "usage": counted(usage)}))
        await wire.send(DONE)
        await wire.end()

    return answer


def said(model: str, delta: dict[str, object], **choice: object) -> dict[str, object]:
    """Make a chunk of one choice."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": delta, **choice}],
    }


def counted(tokens: int) -> dict[str, int]:
    """Make token counts."""
    return {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": 2 * tokens}


async def reset(wire: Wire) -> None:
    """Break the connection off."""
    wire.reset()


async def silence(wire: Wire) -> None:
    """Send nothing more."""
    await wire.gone()


def event(data: object) -> Answer:
    """Send one more event, and leave the connection open."""

    async def answer(wire: Wire) -> None:
        await wire.events(data)
        await wire.gone()

    return answer
