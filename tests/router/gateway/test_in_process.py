"""`@effect` in a stack of this process: on the tape of its exchange, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from contract.flow import Event, Request
from contract.flows.chat import CHAT
from contract.ports import Effects
from contract.records import Role
from cutover.wiring.stacks import load_stack
from cutover_client import (
    EffectInDoubt,
    ExchangeOver,
    GatewayError,
    NotOnTape,
    correlation_headers,
    current_exchange,
    effect,
)
from effects.tape import Exchange, TapeSession
from effects.testing import World
from router.gateway.in_process import client_bound
from router.serving.run import RunRequest
from router.serving.stack import LocalStack


class OutOfStock(Exception):
    """A service's own."""


@dataclass
class Shop:
    """The functions of a service, and what they really did."""

    done: list[str] = field(default_factory=list)

    @effect("insert", errors=(OutOfStock,))
    async def insert(self, item: str) -> int:
        """Insert an order."""
        self.done.append(item)
        if item == "salt":
            raise OutOfStock(item)
        return len(self.done)

    @effect("find", read_only=True)
    def find(self, number: int) -> str:
        """Find an order; blocks."""
        self.done.append(f"find {number}")
        return "tea"

    @effect("stream")
    async def stream(self, until: int) -> AsyncIterator[int]:
        """Stream numbers."""
        for number in range(until):
            self.done.append(str(number))
            yield number

    @effect("list", read_only=True)
    def list_all(self, until: int) -> Iterator[int]:
        """List numbers; blocks."""
        for number in range(until):
            self.done.append(str(number))
            yield number


Task = Callable[[Shop], Awaitable[Any]]
SHADOW: Any = ("shadow", "nearest")
SERVING: Any = ("serving", "live")


def request(role: Role) -> RunRequest:
    """Return a request for a run in a role."""
    return RunRequest(CHAT, "legacy", Request(None, None), role, exchange="e")


async def worked(exchange: Exchange, kind: Any, shop: Shop, task: Task) -> Any:
    """Do a task as a run of an exchange; return what it returned or raised."""
    role, policy = kind
    session = TapeSession(exchange, role, policy)
    try:
        with client_bound(request(role), session):
            assert correlation_headers() == {"x-cutover-exchange": "e", "x-cutover-role": role}
            return await task(shop)
    except Exception as error:  # noqa: BLE001 - told to the test
        return error
    finally:
        assert session.waiting == 0
        assert current_exchange() is None


async def insert(shop: Shop) -> object:
    """Insert an order."""
    return await shop.insert("tea")


async def insert_too_much(shop: Shop) -> object:
    """Insert what there is none of."""
    try:
        return await shop.insert("salt")
    except OutOfStock as error:
        return str(error)


async def insert_elsewhere(shop: Shop) -> object:
    """Insert an order from another loop, in a thread."""
    return await asyncio.to_thread(lambda: asyncio.run(insert(shop)))


async def find(shop: Shop) -> object:
    """Find one, in a thread."""
    return await asyncio.to_thread(shop.find, 7)


async def stream(shop: Shop) -> object:
    """Read a stream."""
    return [number async for number in shop.stream(3)]


async def list_all(shop: Shop) -> object:
    """Read a list, in a thread."""
    return await asyncio.to_thread(lambda: list(shop.list_all(3)))


@pytest.mark.parametrize(
    ("task", "got", "times"),
    [
        (insert, 1, 1),
        (insert_too_much, "salt", 1),
        (insert_elsewhere, 1, 1),
        (find, "tea", 1),
        (stream, [0, 1, 2], 3),
        (list_all, [0, 1, 2], 3),
    ],
)
async def test_it_is_performed_once_and_played_to_others(
    task: Task, got: object, times: int
) -> None:
    """To a shadow and to a successor, of every kind of function."""
    exchange = World().exchange()
    served, played = Shop(), Shop()
    assert await worked(exchange, SERVING, served, task) == got
    assert await worked(exchange, ("fallback", "live"), played, task) == got
    exchange.tape.stop_recording()
    assert await worked(exchange, SHADOW, played, task) == got
    assert (len(served.done), played.done) == (times, [])
    assert [entry.end for entry in exchange.tape.entries] == ["complete"]


async def test_a_function_that_blocks_is_refused_on_the_loop() -> None:
    """It would wait for the loop that waits for it: nothing is done, and the error says what to."""

    async def find_here(shop: Shop) -> object:
        return shop.find(7)

    shop, exchange = Shop(), World().exchange()
    refused = await worked(exchange, SERVING, shop, find_here)
    assert isinstance(refused, GatewayError)
    assert refused.code == "blocks_the_loop"
    assert "asyncio.to_thread" in str(refused)
    assert (shop.done, exchange.tape.entries) == ([], [])


async def test_an_effect_that_is_cancelled_is_in_doubt_at_once() -> None:
    """No lease has to run out; the successor performs nothing, but with a key does."""
    started = asyncio.Event()
    done: list[str] = []

    @effect("slow", key=lambda key: key)
    async def slow(key: str) -> str:
        done.append(key)
        started.set()
        if len(done) < 3:
            await asyncio.get_running_loop().create_future()
        return "done"

    exchange = World().exchange()
    for key in ("", "k"):
        started.clear()
        session = TapeSession(exchange, "serving")
        with client_bound(request("serving"), session):
            work = asyncio.create_task(slow(key))
        await started.wait()
        assert session.waiting == 1
        work.cancel()
        await asyncio.wait({work})
        entry = exchange.tape.entries[-1]
        while entry.end == "open":
            await entry.changed.wait()
        assert session.waiting == 0

    async def catching(_: Shop) -> object:
        with pytest.raises(EffectInDoubt):
            await slow("")
        return await slow("k")

    assert await worked(exchange, ("fallback", "live"), Shop(), catching) == "done"
    assert done == ["", "k", "k"]
    codes = [entry.fault and entry.fault.code for entry in exchange.tape.entries]
    assert codes == ["effect_in_doubt", "effect_in_doubt", None]


async def test_a_replaced_run_performs_nothing() -> None:
    """It is told to stop; a run that ends of it was cancelled, as the tape's own error says."""
    shop, session = Shop(), TapeSession(World().exchange(), "serving")
    session.fence()
    with client_bound(request("serving"), session), pytest.raises(ExchangeOver):
        await shop.insert("tea")
    assert shop.done == []


async def test_what_a_shadow_does_alone_is_a_miss_of_its_run() -> None:
    """The client's error is `NotOnTape`; the run fails as any that misses its tape does."""
    shop = Shop()

    async def flow(_: Request[Any, Any], __: Effects) -> AsyncIterator[Event]:
        try:
            await shop.insert("tea")
        except NotOnTape as error:
            shop.done.append(error.code)
            raise
        yield Event()

    exchange = World().exchange()
    exchange.tape.stop_recording()
    stack = LocalStack("legacy", {"chat": flow}, "", bind=client_bound)
    run = stack.new_run(request("shadow"), TapeSession(exchange, "shadow", "nearest"))
    run.start()
    await run.wait_stopped(5.0)
    assert shop.done == ["tape_miss"]
    assert run.outcome is not None
    assert (run.outcome.kind, run.outcome.code) == ("failed", "tape_miss")


async def test_a_configured_stack_is_bound_and_a_built_in_one_is_not() -> None:
    """Only code of others uses the client."""
    assert load_stack("legacy", "legacy:FLOWS").bind is not client_bound
    assert load_stack("legacy", "legacy").bind is client_bound
