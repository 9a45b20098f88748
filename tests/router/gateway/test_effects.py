"""Effects of services: the tape is the router's, and the tool is the service's."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.routing import Route

from cutover import EffectFailed, Stack, TapeTransport, effect
from cutover.errors import Completed, Failed, Fenced
from cutover.tape.remote import TapeMiddleware
from tests.support.ask import ASK, Ask, Done, Said
from tests.support.origin import Origin, Reply
from tests.support.served import ask
from tests.support.services import effects_server, serving

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


class SoldOut(Exception):
    """There is none."""


class Order(msgspec.Struct, frozen=True):
    """What was ordered."""

    item: str
    number: int


class Shop:
    """A service: what it did in its own process, and its tools."""

    def __init__(self, service: Callable[[Shop, Ask], AsyncIterator[Any]]) -> None:
        made: list[str] = []
        self.made, self._service = made, service
        self.ended = threading.Event()
        self.learning: asyncio.Task[None] | None = None

        @effect("orders.create", writes=True, raises=(SoldOut,), seconds=5)
        async def create(item: str, grams: int = 100) -> Order:
            assert grams
            made.append(item)
            if item == "gold":
                raise SoldOut(item)
            return Order(item, len(made))

        @effect("orders.count")
        def count() -> int:
            made.append("count")
            return len(made)

        @effect("words")
        async def words(number: int) -> AsyncIterator[str]:
            made.append("words")
            for one in range(number):
                yield f"{one} "

        self.create, self.count, self.words = create, count, words

    def app(self) -> Any:
        """Return the service as an application of ASGI."""

        async def post(request: HttpRequest) -> StreamingResponse:
            asked = msgspec.convert(await request.json(), Ask)

            async def body() -> AsyncIterator[bytes]:
                async for event in self._service(self, asked):
                    yield b"data: " + msgspec.json.encode(event) + b"\n\n"

            return StreamingResponse(body(), media_type="text/event-stream")

        return TapeMiddleware(Starlette(routes=[Route("/ask", post, methods=["POST"])]))


async def orders(shop: Shop, asked: Ask) -> AsyncIterator[Any]:
    """Use each kind of tool."""
    order = await shop.create(asked.text)
    yield Said(f"{order.item} is order {order.number}. ")
    yield Said(f"{shop.count()} and {await asyncio.to_thread(shop.count)} of ")
    async for word in shop.words(3):
        yield Said(word)
    try:
        await shop.create("gold")
    except SoldOut as error:
        yield Said(f"No {error}.")
    yield Done()


async def breaks(shop: Shop, asked: Ask) -> AsyncIterator[Any]:
    """Order, say so, and break."""
    order = await shop.create(asked.text)
    yield Said(f"{order.item} is order {order.number}. ")
    raise ZeroDivisionError


async def differs(shop: Shop, asked: Ask) -> AsyncIterator[Any]:
    """Order twice as much, and hide that it was refused."""
    try:
        await shop.create(asked.text, grams=200)
    except Exception:  # noqa: BLE001 - as such code is
        yield Said("sorry")
    yield Done()


@asynccontextmanager
async def served(*shops: Shop) -> AsyncIterator[list[Stack]]:
    """Serve shops before one gateway; yield the stacks that ask them."""
    async with AsyncExitStack() as opened:
        gateway = await opened.enter_async_context(effects_server())
        urls = [await opened.enter_async_context(serving(one.app())) for one in shops]
        yield [gateway.stack(f"{url}/ask") for url in urls]


SAID = "tea is order 1. 2 and 3 of 0 1 2 No gold."


async def test_effects_of_a_service_go_on_the_tape_and_are_performed_once() -> None:
    """Served once, played twice: the tool ran once, in the process of the service that served."""
    legacy, graph = Shop(orders), Shop(orders)
    async with served(legacy, graph) as (old, new):
        heard = await ask(ASK, Ask("tea"), old)
        assert (heard.text, heard.outcome) == (SAID, Completed())
        assert legacy.made == ["tea", "count", "count", "words", "gold"]
        for _ in range(2):
            played = await heard.shadow(new)
            assert played.sent.texts["text"] == SAID
            assert played.outcome == Completed()
            assert {one.how for one in played.run.plays} == {"tape"}
    assert graph.made == []
    names = [one.call.name for one in heard.served.tape.entries]
    assert names == ["orders.create", "orders.count", "orders.count", "words", "orders.create"]


async def test_a_takeover_finds_what_the_other_service_has_done() -> None:
    """The order is made once; the fallback goes on behind it."""
    legacy, graph = Shop(breaks), Shop(orders)
    async with served(legacy, graph) as (old, new):
        heard = await ask(ASK, Ask("tea"), old, new)
    assert heard.outcome == Completed()
    assert heard.text == "tea is order 1. 1 and 2 of 0 1 2 No gold."
    assert (legacy.made, graph.made) == (["tea"], ["count", "count", "words", "gold"])


async def test_a_write_that_differs_is_refused_whatever_the_service_makes_of_it() -> None:
    """The run has recorded it first: the claim of success does not go out."""
    legacy, graph = Shop(breaks), Shop(differs)
    async with served(legacy, graph) as (old, new):
        heard = await ask(ASK, Ask("tea"), old, new)
    assert isinstance(heard.outcome, Failed)
    assert heard.outcome.code == "write_differs"
    assert graph.made == []


async def test_calls_behind_the_end_of_the_stream_are_performed_off_the_tape() -> None:
    """What a service learns from a talk when the client has its answer; a shadow learns nothing."""

    async def learns(shop: Shop, asked: Ask) -> AsyncIterator[Any]:
        yield Said(asked.text)
        yield Done()

        async def learn() -> None:
            try:
                await asyncio.sleep(0.1)
                await shop.create("notes")
            except Fenced:
                shop.made.append("refused")
            finally:
                shop.ended.set()

        shop.learning = asyncio.create_task(learn())

    legacy, graph = Shop(learns), Shop(learns)
    async with served(legacy, graph) as (old, new):
        heard = await ask(ASK, Ask("tea"), old)
        assert await asyncio.to_thread(legacy.ended.wait, 5)
        await heard.shadow(new)
        assert await asyncio.to_thread(graph.ended.wait, 5)
    assert heard.served.tape.off_tape == {"orders.create": 1}
    assert (legacy.made, graph.made) == (["notes"], ["refused"])


KILLED = """
import os, signal, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from cutover import EffectFailed, Stack, TapeTransport, effect
from cutover.tape.remote import TapeMiddleware

@effect("orders.create", writes=True, seconds=0.5)
async def create(item: str, grams: int = 100) -> None:
    with open(sys.argv[2], "a") as made:
        made.write(item)
    os.kill(os.getpid(), signal.SIGKILL)

async def ask(request):
    async def body():
        yield b'data: {"type":"said","text":"one "}\\n\\n'
        await create("tea")
    return StreamingResponse(body(), media_type="text/event-stream")

app = TapeMiddleware(Starlette(routes=[Route("/ask", ask, methods=["POST"])]))
uvicorn.run(app, fd=int(sys.argv[1]), log_level="error")
"""


async def test_a_write_of_a_service_that_was_killed_is_in_doubt(tmp_path: Path) -> None:
    """Its successor is told, and does not make it again."""

    async def goes_on(shop: Shop, asked: Ask) -> AsyncIterator[Any]:
        yield Said("one ")
        try:
            await shop.create(asked.text)
        except EffectFailed as error:
            yield Said(error.kind)
        yield Done()

    graph, made = Shop(goes_on), tmp_path / "made"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-c", KILLED, str(listening.fileno()), str(made)]
        process = await asyncio.create_subprocess_exec(*command, pass_fds=[listening.fileno()])
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/ask"
        try:
            async with effects_server() as gateway, serving(graph.app()) as new:
                stacks = gateway.stack(url), gateway.stack(f"{new}/ask")
                heard = await ask(ASK, Ask("tea"), *stacks)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert process.returncode == -signal.SIGKILL
    assert (heard.text, heard.outcome) == ("one OutcomeUnknown", Completed())
    assert (made.read_text(), graph.made) == ("tea", [])


async def test_requests_of_a_service_are_performed_by_it_and_played() -> None:
    """An HTTP tool behind a transport: the service sends it, with its own keys, once."""

    async def asks(_: Shop, asked: Ask) -> AsyncIterator[Any]:
        transport = TapeTransport()
        async with transport, httpx.AsyncClient(transport=transport) as client:
            answer = await client.post(f"{world.url}/orders", json={"item": asked.text})
        yield Said(f"{answer.status_code} {answer.text}")
        yield Done()

    async with Origin() as world, served(Shop(asks), Shop(asks)) as (old, new):
        world.script(Reply([b"Order \xe2\x82\xac17"], "text/plain", 201))
        heard = await ask(ASK, Ask("tea"), old)
        played = await heard.shadow(new)
        assert heard.text == played.sent.texts["text"] == "201 Order €17"
        assert [one.call.name for one in heard.served.tape.entries] == ["http POST /orders"]
        assert len(world.asked) == 1
