"""Leaving an answer drops its connection."""

from __future__ import annotations

import asyncio

import pytest

from tests.effects.model.loopback import CALL, Wire, ask, delta, once, registry_of, serving
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


async def test_leaving_before_the_headers_is_noticed() -> None:
    """A cancelled call drops a connection without an answer."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(wire: Wire) -> None:
        asked.set()
        await wire.gone()
        left.set()

    async with serving(answer) as loopback:
        asking = asyncio.create_task(ask(loopback.entry()))
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


def test_a_loop_that_ends_closes_a_forgotten_stream(recwarn: pytest.WarningsRecorder) -> None:
    """Its generator is closed by the loop, its connection with it; nothing is complained of."""

    async def forget() -> None:
        async def answer(wire: Wire) -> None:
            await wire.head()
            await wire.events(delta(content="Hi"))
            await wire.gone()
            left.append(True)

        async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
            stream = once(registry).stream("reply", CALL)
            await anext(stream)
            del stream
            async with asyncio.timeout(PATIENCE_S):
                while not left:  # noqa: ASYNC110 (the collector calls, not a task)
                    await asyncio.sleep(0)

    left: list[bool] = []
    asyncio.run(forget())
    assert not list(recwarn)
