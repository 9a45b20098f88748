"""Decorated functions of two services behind a router: performed once, played to the other run."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compare.captures import Question, compare_captures
from compare.input.selection import EVERYTHING
from contract.flows.chat import CHAT
from cutover_client import (
    EffectFailed,
    EffectInDoubt,
    ExchangeOver,
    Gateway,
    GatewayError,
    NotJson,
    NotOnTape,
    correlation_headers,
    current_exchange,
    effect,
)
from tests.support.deployment import Deployment
from tests.support.effects import KEY, Stack, ask, house, served

pytestmark = pytest.mark.sockets


class OutOfStock(Exception):
    """A service's own."""


@dataclass(frozen=True)
class Order:
    """What a service returns."""

    number: int
    day: dt.date


@dataclass
class Shop:
    """The functions of a service, and what they really did."""

    done: list[str] = field(default_factory=list)
    left: int = 3

    @effect("orders.insert", errors=(OutOfStock,))
    async def insert(self, item: str, count: int = 1) -> int:
        """Insert an order, while there is some left."""
        self.done.append(f"insert {count} {item}")
        if count > self.left:
            raise OutOfStock(item)
        return len(self.done)

    @effect(
        "orders.find",
        read_only=True,
        decode=lambda found: Order(found["number"], dt.date.fromisoformat(found["day"])),
    )
    def find(self, number: int) -> Order:
        """Find an order; blocks."""
        self.done.append(f"find {number}")
        return Order(number, dt.date(2026, 11, 24))

    @effect("orders.stream")
    async def stream(self, until: int) -> AsyncIterator[int]:
        """Stream numbers."""
        for number in range(until):
            self.done.append(f"stream {number}")
            yield number

    @effect("orders.list")
    def list_all(self, until: int) -> Iterator[int]:
        """List numbers; blocks."""
        for number in range(until):
            self.done.append(f"list {number}")
            yield number

    @effect("orders.fail")
    async def fail(self) -> None:
        """Fail in a way nobody foresaw."""
        self.done.append("fail")
        raise RuntimeError("a secret")

    @effect("orders.object")
    async def give_an_object(self) -> object:
        """Return what is no JSON."""
        self.done.append("object")
        return object()


Task = Callable[[Shop], Awaitable[Any]]


@dataclass
class Service:
    """A stack that does a task with its shop, and what came of it."""

    task: Task
    fails: bool = False
    shop: Shop = field(default_factory=Shop)
    got: list[Any] = field(default_factory=list)

    def stack(self) -> Stack:
        """Return it as a stack."""
        return Stack(self._work, self.fails)

    async def _work(self, stack: Stack) -> None:
        assert stack.asked is not None
        gateway = Gateway(stack.gateway, stack.key)
        try:
            with gateway.exchange(dict(stack.asked.headers)):
                self.got.append(await self.task(self.shop))
        except Exception as error:  # noqa: BLE001 - told to the test
            self.got.append(error)
        finally:
            await gateway.aclose()


@asynccontextmanager
async def both(
    folder: Path, legacy: Service, graph: Service, *, shadow: float = 100
) -> AsyncIterator[Deployment]:
    """Serve one request with both services."""
    async with house(folder, legacy.stack(), graph.stack(), shadow=shadow) as place:
        await ask(place)
        yield place


async def insert(shop: Shop) -> object:
    """Insert an order."""
    return await shop.insert("tea", count=2)


async def find(shop: Shop) -> object:
    """Find one, in a thread as frameworks do."""
    return await asyncio.to_thread(shop.find, 7)


async def stream(shop: Shop) -> object:
    """Read a stream."""
    return [number async for number in shop.stream(3)]


async def list_all(shop: Shop) -> object:
    """Read a list, in a thread."""
    return await asyncio.to_thread(lambda: list(shop.list_all(3)))


async def first_of_stream(shop: Shop) -> object:
    """Leave a stream early."""
    numbers = shop.stream(3)
    first = await anext(numbers)
    await numbers.aclose()  # type: ignore[attr-defined] # a generator
    return first


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("task", "got", "times"),
    [
        (insert, 1, 1),
        (find, Order(7, dt.date(2026, 11, 24)), 1),
        (stream, [0, 1, 2], 3),
        (list_all, [0, 1, 2], 3),
        (first_of_stream, 0, 1),
    ],
)
async def test_a_shadow_gets_what_the_function_returned(
    tmp_path: Path, task: Task, got: object, times: int
) -> None:
    """Of every kind of function; none of it is done twice."""
    legacy, graph = Service(task), Service(task)
    async with both(tmp_path, legacy, graph) as place:
        run = await served(place)
    assert legacy.got == graph.got == [got]
    assert (len(legacy.shop.done), graph.shop.done) == (times, [])
    assert [entry.end for entry in run.tape or ()] == ["complete"]


async def test_named_errors_are_raised_again_and_others_say_their_kind_alone(
    tmp_path: Path,
) -> None:
    """What an unforeseen error says stays where it was raised."""

    async def too_much(shop: Shop) -> None:
        await shop.insert("tea", count=9)

    async def unforeseen(shop: Shop) -> None:
        await shop.fail()

    legacy, graph = Service(too_much), Service(too_much)
    async with both(_folder(tmp_path, "1"), legacy, graph):
        pass
    [here], [there] = legacy.got, graph.got
    assert isinstance(here, OutOfStock)
    assert isinstance(there, OutOfStock)
    assert str(here) == str(there) == "tea"
    legacy, graph = Service(unforeseen), Service(unforeseen)
    async with both(_folder(tmp_path, "2"), legacy, graph) as place:
        run = await served(place)
    [here], [there] = legacy.got, graph.got
    assert isinstance(here, RuntimeError)
    assert isinstance(there, EffectFailed)
    assert there.kind == "RuntimeError"
    assert b"secret" not in b"".join(bytes(item) for item in (run.tape or ())[0].items)


async def test_a_result_that_is_no_json_is_returned_where_it_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The user's request goes on; the log and the shadow say what is wrong."""

    async def give(shop: Shop) -> object:
        return await shop.give_an_object()

    legacy, graph = Service(give), Service(give)
    async with both(tmp_path, legacy, graph):
        pass
    assert type(legacy.got[0]) is object
    assert isinstance(graph.got[0], EffectFailed)
    assert "orders.object" in caplog.text


async def test_a_successor_goes_on_with_what_was_done(tmp_path: Path) -> None:
    """The failed stack's order is not inserted again."""
    legacy, graph = Service(insert, fails=True), Service(insert)
    async with both(tmp_path, legacy, graph, shadow=0):
        pass
    assert (legacy.got, graph.got, graph.shop.done) == ([1], [1], [])


async def test_a_shadow_that_does_something_else_performs_nothing(tmp_path: Path) -> None:
    """There is nothing of that name on the tape."""

    async def nothing(_: Shop) -> None:
        pass

    legacy, graph = Service(nothing), Service(insert)
    async with both(tmp_path, legacy, graph):
        pass
    assert isinstance(graph.got[0], NotOnTape)
    assert graph.shop.done == []


async def test_an_effect_whose_process_died_is_in_doubt(tmp_path: Path) -> None:
    """It is cancelled in the middle, as by a crash: the successor is told, and does not do it."""

    async def crash(shop: Shop) -> None:
        @effect("orders.insert", seconds=0.05)
        async def insert(item: str, count: int = 1) -> None:
            shop.done.append(f"insert {count} {item}")
            raise asyncio.CancelledError

        try:
            await insert("tea", count=2)
        except asyncio.CancelledError:
            return

    legacy, graph = Service(crash, fails=True), Service(insert)
    async with both(tmp_path, legacy, graph, shadow=0) as place:
        run = await served(place)
    assert legacy.shop.done == ["insert 2 tea"]
    assert graph.shop.done == []
    assert isinstance(graph.got[0], EffectInDoubt)
    [entry] = run.tape or ()
    assert entry.fault is not None
    assert entry.fault.code == "effect_in_doubt"


async def test_a_long_effect_gives_signs_of_life(tmp_path: Path) -> None:
    """It takes three times as long as its lease, awaiting and blocking, and is taken."""

    @effect("slow", seconds=0.4)
    async def slow() -> str:
        await asyncio.sleep(1.2)
        return "done"

    @effect("slow in a thread", seconds=0.4)
    def slow_in_a_thread() -> str:
        asyncio.run(asyncio.sleep(1.2))
        return "done"

    async def work(_: Shop) -> list[str]:
        return [await slow(), await asyncio.to_thread(slow_in_a_thread)]

    legacy, graph = Service(work), Service(work)
    async with both(tmp_path, legacy, graph) as place:
        run = await served(place)
    assert legacy.got == graph.got == [["done", "done"]]
    assert [entry.end for entry in run.tape or ()] == ["complete", "complete"]


async def test_outside_of_an_exchange_it_is_the_function_alone() -> None:
    """No gateway is there, nothing is written as JSON, and calls carry no header."""
    gateway = Gateway("http://127.0.0.1:9", KEY)
    shop = Shop()
    with gateway.exchange({"accept": "text/event-stream"}) as exchange:
        assert exchange is None
        assert await shop.insert("tea") == 1
        assert shop.find(2) == Order(2, dt.date(2026, 11, 24))
        assert await stream(shop) == list(shop.list_all(3)) == [0, 1, 2]
        assert type(await shop.give_an_object()) is object
        assert correlation_headers() == {}
    assert asyncio.iscoroutinefunction(shop.insert)


async def test_a_gateway_that_is_not_there_performs_nothing() -> None:
    """The stream comes through the router: without it nobody reads the answer."""
    gateway = Gateway("http://127.0.0.1:9", KEY)
    shop = Shop()
    with gateway.exchange({"x-cutover-exchange": "e", "x-cutover-role": "serving"}):
        assert correlation_headers() == {"x-cutover-exchange": "e", "x-cutover-role": "serving"}
        with pytest.raises(GatewayError, match="gateway_unreachable"):
            await shop.insert("tea")
        with pytest.raises(GatewayError, match="gateway_unreachable"):
            shop.find(1)
    assert (shop.done, current_exchange()) == ([], None)
    await gateway.aclose()


@pytest.mark.parametrize("role", ["serving", "fallback", "shadow"])
async def test_an_exchange_that_is_over_performs_nothing(tmp_path: Path, role: str) -> None:
    """Whichever run asks late: another one may have done it, and the router has forgotten it."""
    legacy, late = Service(insert), Shop()
    async with both(tmp_path, legacy, Service(insert), shadow=0) as place:
        gateway = Gateway(place.gateway, KEY)
        headers = {"x-cutover-exchange": (await served(place)).exchange, "x-cutover-role": role}
        with gateway.exchange(headers):
            with pytest.raises(ExchangeOver, match="unknown_exchange"):
                await late.insert("tea", count=2)
            with pytest.raises(ExchangeOver, match="unknown_exchange"):
                await asyncio.to_thread(late.find, 7)
            with gateway.exchange({}):
                assert await late.insert("a mail") == 1
        await gateway.aclose()
    assert late.done == ["insert 1 a mail"]


async def test_arguments_that_are_no_json_are_named_before_anything_is_done() -> None:
    """What is to be left out is said, too."""
    ran: list[object] = []

    @effect("store")
    async def store(session: object, row: dict[str, Any]) -> None:
        ran.append((session, row))

    with (
        Gateway("http://127.0.0.1:9", KEY).exchange({"x-cutover-exchange": "e"}),
        pytest.raises(NotJson, match=r"'session' of the effect 'store'.*ignore="),
    ):
        await store(object(), {})
    assert ran == []


async def test_what_is_in_doubt_is_counted_and_named(tmp_path: Path) -> None:
    """In the outcome, which metrics, report and gate share, and among what graph wrote."""

    @effect("orders.insert", seconds=0.05)
    async def dies() -> None:
        raise asyncio.CancelledError

    async def crash(_: Shop) -> None:
        with suppress(asyncio.CancelledError):
            await dies()

    legacy, graph = Service(insert), Service(crash)
    async with house(tmp_path, legacy.stack(), graph.stack(), percent=100) as place:
        await ask(place)
        await place.settled()
        await place.services.captures.flush()
        question = Question({"chat": CHAT}, served=EVERYTHING)
        tally = compare_captures(str(place.folder), question).served
        async with place.session.get(f"{place.url}/metrics") as page:
            counted = await page.text()
    assert graph.got == [None]
    assert 'what="external.run:orders.insert"} 1.0' in counted
    [outcome] = tally.outcomes.values()
    assert outcome.in_doubt == ("external.run:orders.insert",)
    [wrote] = tally.lasting()
    assert (wrote.what, wrote.count, wrote.in_doubt) == ("run orders.insert", 1, 1)
