"""What every model port does, the real one and the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, cast

import msgspec
import pytest

from contract.errors import EffectFailed, Fault
from contract.model import (
    Chunk,
    ImagePart,
    ImageUrl,
    ModelCall,
    ModelInfo,
    SystemMessage,
    TextPart,
    ToolCallDelta,
    Usage,
    UserMessage,
    field_of,
    reference,
)
from contract.ports import Model
from effects.model import (
    Fail,
    Hang,
    LimitedModel,
    ScriptedModel,
    Step,
    resolving,
    resolving_effects,
    says,
)
from effects.tape import TapeSession
from effects.testing import World
from tests.support.loopback_provider import (
    CALL,
    Wire,
    finish,
    once,
    registry_of,
    serving,
    usage,
    whole,
)
from tests.support.patience import PATIENCE_S

TRUNCATED = Fault("model_truncated", retryable=True, data={"malformed": 0})
INFO = ModelInfo(model_id="m", model="loop-1")


@dataclass
class Played:
    """A model that plays steps; `left` is set when it notices that the caller has gone."""

    model: Model
    left: asyncio.Event


Play = Callable[[Sequence[Step]], AbstractAsyncContextManager[Played]]


@asynccontextmanager
async def real(steps: Sequence[Step]) -> AsyncIterator[Played]:
    """Play through a provider on loopback and the adapter."""
    left = asyncio.Event()

    async def answer(wire: Wire) -> None:
        await wire.head()
        for step in steps:
            if isinstance(step, Chunk):
                await wire.events(event(step))
            elif isinstance(step, Fail):
                wire.reset()
                return
            else:
                await wire.gone()
                left.set()
        await wire.send(b"data: [DONE]\n\n")
        await wire.end()

    async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
        yield Played(once(registry), left)


@asynccontextmanager
async def fake(steps: Sequence[Step]) -> AsyncIterator[Played]:
    """Play through the fake."""
    model = ScriptedModel(steps, models=[INFO])
    yield Played(model, model.left)


def event(chunk: Chunk) -> dict[str, object]:
    """Return the provider's JSON of a chunk."""
    if chunk.usage is not None:
        return {**usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens), "model": None}
    if chunk.finish:
        return {**finish(chunk.finish), "model": None}
    calls = [
        {"index": c.index, "id": c.id, "function": {"name": c.name, "arguments": c.arguments}}
        for c in chunk.tool_calls
    ]
    fields = {"content": chunk.text, "reasoning_content": chunk.reasoning, "tool_calls": calls}
    return {"choices": [{"index": 0, "delta": fields}]}


@pytest.fixture(params=[real, fake], ids=["real", "fake"])
def play(request: pytest.FixtureRequest) -> Play:
    """Return a way to play steps through a model port."""
    return cast("Play", request.param)


async def test_chunks_come_in_order_with_all_they_carry(play: Play) -> None:
    """Text, reasoning, tool calls, finish reason and usage arrive as they were said."""
    said: list[Step] = [
        Chunk(reasoning="hm"),
        Chunk(text="Hel"),
        Chunk(text="lo"),
        Chunk(tool_calls=(ToolCallDelta(0, "call_1", "add", "{}"),)),
        Chunk(finish="tool_calls"),
        Chunk(usage=Usage(3, 2, 5)),
    ]
    async with play(said) as played:
        assert await whole(played.model.stream("reply", CALL)) == said


async def test_each_call_is_answered_anew(play: Play) -> None:
    """A second stream begins at the beginning."""
    said: list[Step] = [Chunk(text="again"), Chunk(finish="stop")]
    async with play(said) as played:
        for _ in range(2):
            assert await whole(played.model.stream("reply", CALL)) == said


async def test_a_fault_in_the_middle_comes_after_what_was_said(play: Play) -> None:
    """The chunks before a break are delivered, then the fault is raised."""
    async with play([Chunk(text="Hel"), Fail(TRUNCATED)]) as played:
        stream = played.model.stream("reply", CALL)
        assert await anext(stream) == Chunk(text="Hel")
        with pytest.raises(EffectFailed) as caught:
            await anext(stream)
    assert caught.value.fault == TRUNCATED


async def test_an_unknown_model_fails_when_it_is_asked(play: Play) -> None:
    """Not when `stream` is called: the recorder iterates inside its own `try`."""
    async with play([]) as played:
        stream = played.model.stream("reply", msgspec.structs.replace(CALL, model_id="unknown"))
        with pytest.raises(EffectFailed, match="unknown_model"):
            await anext(stream)


async def test_lookup_tells_what_is_registered(play: Play) -> None:
    """Name and limits, or the fault `unknown_model`."""
    async with play([]) as played:
        assert await played.model.lookup("model", "m") == INFO
        with pytest.raises(EffectFailed, match="unknown_model"):
            await played.model.lookup("model", "unknown")


async def test_cancelling_who_waits_is_noticed(play: Play) -> None:
    """A cancelled reader leaves no stream open at the other end."""
    async with play([Chunk(text="Hel"), Hang()]) as played:
        began = asyncio.Event()

        async def read() -> None:
            async for _ in played.model.stream("reply", CALL):
                began.set()

        reading = asyncio.create_task(read())
        await began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(PATIENCE_S):
            await played.left.wait()


async def test_closing_the_stream_is_noticed(play: Play) -> None:
    """Closing the generator between two chunks is as good as cancelling."""
    async with play([Chunk(text="Hel"), Hang()]) as played:
        stream = cast("AsyncGenerator[Chunk, None]", played.model.stream("reply", CALL))
        async with aclosing(stream):
            assert await anext(stream) == Chunk(text="Hel")
        async with asyncio.timeout(PATIENCE_S):
            await played.left.wait()


EMPTY_CALL = ModelCall(model_id="m", messages=())


async def text(model: LimitedModel) -> str:
    """Ask, and read to the end."""
    return "".join([chunk.text async for chunk in model.stream("s", EMPTY_CALL)])


async def test_a_limited_model_answers_as_the_other() -> None:
    """All of it, and what is registered too."""
    model = LimitedModel(ScriptedModel(says("Hello")), 1)
    assert await text(model) == "Hello"
    assert (await model.lookup("s", "m")).model_id == "m"


async def test_a_hanging_answer_holds_up_others_until_it_is_cancelled() -> None:
    """No call is made beyond the number; a cancelled answer passes its turn on."""
    asked = ScriptedModel([Hang()])
    model = LimitedModel(asked, 2)
    calls = [asyncio.create_task(text(model)) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(asked.calls), asked.open) == (2, 2)
    calls[0].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(asked.calls), asked.cancelled, asked.open) == (3, 1, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert asked.open == 0


class Body(msgspec.Struct):
    """A request with an image."""

    by_reference: ClassVar[tuple[str, ...]] = ("image",)
    image: str = "data:image/png;base64,AAAA"
    secret: str = "s"


class Plain(msgspec.Struct):
    """A request without one."""

    image: str = "x"


def call(url: str) -> ModelCall:
    """Ask about an image."""
    parts = (TextPart("look"), ImagePart(ImageUrl(url)))
    return ModelCall(model_id="m", messages=(SystemMessage("s"), UserMessage(parts)))


async def test_the_model_gets_the_image_and_the_tape_its_name() -> None:
    """Whatever its size, the tape holds a line."""
    world = World()
    exchange = world.exchange(live=resolving_effects(world.effects, Body()))
    asked = call(reference("image", "abc"))
    async for _ in TapeSession(exchange, "r").effects().model.stream("look", asked):
        pass
    await exchange.close()
    (got,) = (one for _, one in world.model.calls)
    assert got == call(Body().image)
    assert b"request:image#sha256=abc" in exchange.tape.entries[0].args


async def test_only_what_a_request_may_name_is_shown() -> None:
    """Another field is an error, not a secret told."""
    world = World()
    model = resolving(world.effects.model, Body())
    with pytest.raises(EffectFailed, match="model_bad_request"):
        model.stream("look", call(reference("secret", "abc")))
    assert (await model.lookup("m", "m")).model_id == "m"


async def test_what_is_no_name_stays_as_it_is() -> None:
    """Addresses, data URLs, plain texts."""
    world = World()
    model = resolving(world.effects.model, Body())
    plain = ModelCall(model_id="m", messages=(UserMessage("request:image#sha256=x"),))
    for one in (call("https://example.com/a.png"), call("request:image"), plain):
        async for _ in model.stream("look", one):
            pass
        assert world.model.calls[-1][1] == one


async def test_a_request_that_names_nothing_asks_the_model_itself() -> None:
    """It costs nothing there."""
    live = World().effects
    assert resolving_effects(live, Plain()) is live
    assert resolving(live.model, {"image": "x"}) is live.model


@pytest.mark.parametrize(("url", "field"), [("request:a#sha256=", "a"), ("request:a", None)])
def test_a_reference_names_a_field(url: str, field: str | None) -> None:
    """And nothing without a digest."""
    assert field_of(url) == field
