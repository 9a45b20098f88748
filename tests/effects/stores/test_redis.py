"""Redis as a neighbour: what its adapters say when it is away, or cannot be told a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from contract.errors import EffectFailed, Fault, FaultCode
from effects.stores import NO_SPENDING, Pin
from effects.stores.redis import RedisLeases, RedisPins, RedisSharedState

pytestmark = pytest.mark.sockets

Adapter = RedisSharedState | RedisLeases | RedisPins
CALLS: list[tuple[type[Adapter], Callable[..., Awaitable[object]], FaultCode]] = [
    (RedisSharedState, lambda board: board.update_notes([]), "store_unavailable"),
    (
        RedisSharedState,
        lambda board: board.report_spending(20_717, "a", NO_SPENDING),
        "store_unavailable",
    ),
    (
        RedisPins,
        lambda pins: pins.hold("chat", "c1", Pin("graph", "v1", 1), 60.0),
        "store_unavailable",
    ),
    (RedisLeases, lambda leases: leases.hold("k", "token", 60_000), "lock_unavailable"),
    (RedisLeases, lambda leases: leases.release("k", "token"), "lock_unavailable"),
]


@pytest.mark.parametrize(("adapter", "call", "code"), CALLS)
async def test_redis_out_of_reach_is_a_fault(
    unused_port: int,
    adapter: type[Adapter],
    call: Callable[..., Awaitable[object]],
    code: FaultCode,
) -> None:
    """No exception of the library leaves an adapter, and no address is in the fault."""
    async with aclosing(adapter(f"redis://127.0.0.1:{unused_port}/0")) as asked:
        with pytest.raises(EffectFailed) as failed:
            await call(asked)
    assert failed.value.fault == Fault(code, retryable=True)


async def test_a_key_that_is_no_text_is_a_fault(redis_url: str) -> None:
    """Half a character cannot be sent, and asking again would not help."""
    async with aclosing(RedisLeases(redis_url)) as leases:
        with pytest.raises(EffectFailed) as failed:
            await leases.hold("\ud800", "token", 60_000)
    assert failed.value.fault == Fault("lock_unavailable", data={"reason": "value"})
