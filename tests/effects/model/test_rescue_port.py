"""The port that rescues, beyond its faults: leaving, changed policies, what is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from contract.model import Chunk, as_whole
from effects.model import AttemptLine, BreakerPolicy, RescuePolicy, RescuingModel
from effects.tape import TapeSession, canonical
from effects.tape.exchange import port_exchange
from rules.conversation import read_text
from tests.support.loopback_provider import CALL, Wire, refusing, registry_of, serving, whole
from tests.support.misbehaving_providers import (
    NO_WAIT,
    Held,
    pair,
    reset,
    saying,
    silence,
    through_the_port,
)
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.virtual]


async def leave(model: RescuingModel, reached: asyncio.Event) -> None:
    """Ask, leave when `reached` is set, and see everything dropped."""
    asking = asyncio.create_task(whole(model.stream("reply", CALL)))
    await reached.wait()
    asking.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_leaving_while_an_answer_comes() -> None:
    """The connection is dropped at once; the attempt counts as left, and blames no provider."""
    held = Held()
    answer = saying("Hel", then=held)
    async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
        model = RescuingModel(registry)
        await leave(model, held.asked)
        await held.until_left()
    assert model.counts.attempts == {AttemptLine("m", "loopback", "loop-1", "left"): 1}
    assert [state.calls for state in model.breakers.states(0)] == [0]


async def test_leaving_while_waiting_to_ask_again() -> None:
    """The wait ends with the caller; no model is called any more."""
    waiting = asyncio.Event()

    async def sleep(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with serving(refusing(503)) as loopback, registry_of(loopback.entry()) as registry:
        model = RescuingModel(registry, draw=lambda: 1.0, sleep=sleep)
        await leave(model, waiting)
    assert len(loopback.requests) == 1


async def test_whoever_leaves_a_probe_lets_the_next_one_try() -> None:
    """A breaker does not stay half open for want of an end."""
    policy = replace(NO_WAIT, attempts=1, breaker=BreakerPolicy(calls=1, rest=1e-9))
    async with (
        serving(saying("Hel", then=silence)) as loopback,
        registry_of(loopback.entry(idle=0.05)) as registry,
    ):
        model = RescuingModel(registry, policy)
        for _ in range(3):
            stream = model.stream("reply", CALL)
            assert await anext(stream) == Chunk(text="Hel", model="loop-1")
            await stream.aclose()
    assert model.counts.attempts == {AttemptLine("m", "loopback", "loop-1", "left"): 3}


@asynccontextmanager
async def unlike() -> AsyncIterator[RescuingModel]:
    """Open a model that breaks off, and whose fallback begins with other words."""
    async with (
        serving(saying("Hey", then=reset)) as one,
        serving(saying("Hello")) as other,
        through_the_port(pair(one, other)) as caller,
    ):
        yield caller.model


async def test_a_whole_answer_is_held_until_it_is_complete() -> None:
    """A caller that waits for the whole gets the second answer, however it begins."""
    async with unlike() as model:
        chunks = await whole(model.stream("reply", as_whole(CALL)))
    assert "".join(chunk.text for chunk in chunks) == "Hello"
    assert chunks[0].by == "spare"
    assert model.counts.rescues == {"failed_over": 1}


async def test_a_flow_that_reads_a_whole_text_is_rescued() -> None:
    """On the tape the call is the same as any other; only the fallback's answer stands there."""
    async with unlike() as model:
        exchange = port_exchange("model", model, time.monotonic, 0)
        read = await read_text(TapeSession(exchange, "serving").effects(), "reply", CALL)
    assert read == "Hello"
    [entry] = exchange.tape.record()
    assert bytes(entry.args) == canonical(CALL)
    await exchange.close()


async def test_a_changed_policy_holds_for_the_next_answer() -> None:
    """For attempts and breakers alike."""
    async with (
        serving(refusing(503)) as loopback,
        through_the_port([loopback.entry()]) as caller,
    ):
        await caller.ask()
        assert len(loopback.requests) == 3
        caller.model.policy = RescuePolicy(attempts=1, breaker=BreakerPolicy(calls=4))
        await caller.ask()
        assert len(loopback.requests) == 4
        assert caller.model.policy.attempts == 1
        refused = (await caller.ask()).fault
    assert refused is not None
    assert refused.data["cause"] == "breaker_open"
    assert len(loopback.requests) == 4


async def test_after_a_splice_it_can_break_once_more() -> None:
    """What was sent grows; the third answer begins with all of it."""
    answers = [saying("Hel", then=reset), saying("Hello", then=reset), saying("Hello", " you")]

    async def answer(wire: Wire) -> None:
        await answers.pop(0)(wire)

    async with serving(answer) as one, registry_of(one.entry()) as registry:
        entry = one.entry()
        spares = [replace(entry, model_id=f"s{n}", model=f"s{n}") for n in range(2)]
        registry.put([replace(entry, fallbacks=("s0", "s1")), *spares])
        chunks = await whole(RescuingModel(registry).stream("reply", CALL))
    assert [chunk.text for chunk in chunks if chunk.text] == ["Hel", "lo", " you"]
    assert [chunk.by for chunk in chunks if chunk.by] == ["s0", "s1"]
    assert [request.body["model"] for request in one.requests] == ["loop-1", "s0", "s1"]


async def test_nothing_fails_and_nothing_is_asked_twice() -> None:
    """One request a call, no wait, no word in the log."""
    async with (
        serving(saying("Hello")) as loopback,
        through_the_port([loopback.entry()]) as caller,
    ):
        for _ in range(3):
            assert (await caller.ask()).text == "Hello"
    assert (len(loopback.requests), loopback.connections, caller.waits) == (3, 1, [])
    assert caller.model.counts.rescues == {}


async def test_leaving_while_two_models_are_hedged() -> None:
    """Both connections are dropped at once; both attempts count as left and blame no provider."""
    hedged, first_left, second_left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def first(wire: Wire) -> None:
        await wire.gone()
        first_left.set()

    async def second(wire: Wire) -> None:
        hedged.set()
        await wire.gone()
        second_left.set()

    async with serving(first) as one, serving(second) as other:
        entries = pair(one, other)
        async with through_the_port(entries, replace(NO_WAIT, hedge=0.02)) as caller:
            await leave(caller.model, hedged)
            async with asyncio.timeout(PATIENCE_S):
                await first_left.wait()
                await second_left.wait()
            assert {line.outcome for line in caller.model.counts.attempts} == {"left"}
            assert [state.calls for state in caller.model.breakers.states(0)] == [0, 0]
