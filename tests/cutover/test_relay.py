"""`cutover mcp --server NAME`: a server of the router, for clients that start theirs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import RequestParamsMeta, TextContent, TextResourceContents

from cutover.bridge import REFUSED
from tests.cutover.test_bridge import META, outcome
from tests.router.gateway.test_asking_servers import User, store_house, working
from tests.router.gateway.test_asking_servers import nothing as idle
from tests.router.gateway.test_tool_servers import Shop, nothing, shop_house
from tests.support.deployment import until
from tests.support.effects import KEY, Stack, ask, served

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])


@asynccontextmanager
async def relay(
    url: str, user: User, mode: Any, key: str = KEY, server: str = "store"
) -> AsyncIterator[Client]:
    """Open a client that starts the relay."""
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "cutover", "mcp", "--server", server],
        env={**os.environ, "CUTOVER_URL": url, "GATEWAY_KEY": key},
        cwd=ROOT,
    )
    async with Client(
        started, mode=mode, elicitation_callback=user.elicit, sampling_callback=user.sample
    ) as client:
        yield client


async def buy(client: Client, meta: dict[str, Any]) -> Any:
    """Buy tea, which asks the user."""
    named: RequestParamsMeta = meta  # type: ignore[assignment] # any keys are allowed
    result = await client.call_tool("buy", {"item": "tea"}, meta=named)
    [block] = result.content
    assert isinstance(block, TextContent)
    [read] = (await client.read_resource("store://opening", meta=named)).contents
    assert isinstance(read, TextResourceContents)
    return block.text, read.text


@BOTH
async def test_calls_questions_and_reads_are_of_the_exchange_that_they_name(
    tmp_path: Path, mode: Any
) -> None:
    """A shadow's client is asked, too, and gets the purchase of the run that served."""
    clients: list[Client] = []

    async def work(stack: Stack) -> None:
        assert stack.asked is not None
        meta = {key: stack.asked.header(header)[0] for header, key in META.items()}
        stack.replies.append((200, await buy(clients[0], meta)))

    legacy, graph, user = Stack(work), Stack(work), User()
    async with (
        store_house(tmp_path, legacy, graph, modern=False, shadow=100) as (place, store),
        relay(place.gateway, user, mode) as client,
    ):
        clients.append(client)
        await ask(place)
    assert store.done == ["buy 3 tea", "read opening"]
    assert legacy.replies == [(200, ("3 of tea bought", "nine to five"))]
    assert graph.replies == legacy.replies
    assert user.asked == ["How many tea?"] * 2


@BOTH
async def test_without_an_exchange_it_is_a_plain_proxy(tmp_path: Path, mode: Any) -> None:
    """And what is refused has the gateway's code."""
    both = working(idle), working(idle)
    async with (
        store_house(tmp_path, *both, modern=True) as (place, store),
        relay(place.gateway, User(), mode) as client,
    ):
        assert await buy(client, {}) == ("3 of tea bought", "nine to five")
        late = await outcome(client, "buy", {"cutover/exchange": "gone"}, item="tea")
    assert late == (REFUSED, "unknown_exchange")
    assert store.done == ["buy 3 tea", "read opening"]


@BOTH
async def test_a_cancelled_call_of_an_exchange_goes_on_to_its_end(
    tmp_path: Path, mode: Any
) -> None:
    """What is delivered cannot be called back: the record and the successor have its answer."""
    clients: list[Client] = []
    let_go: list[Callable[[], None]] = []
    shops: list[Shop] = []

    async def impatient(stack: Stack) -> None:
        call = asyncio.create_task(deliver(stack, clients[0]))
        await until(lambda: shops[0].done == ["deliver"])
        call.cancel()
        await asyncio.wait({call})
        let_go[0]()

    async def patient(stack: Stack) -> None:
        stack.replies.append((200, await deliver(stack, clients[0])))

    legacy, graph = Stack(impatient, fails=True), Stack(patient)
    async with (
        shop_house(tmp_path, legacy, graph) as (place, shop, go),
        relay(place.gateway, User(), mode, server="shop") as client,
    ):
        clients.append(client)
        shops.append(shop)
        let_go.append(go)
        await ask(place)
        run = await served(place)
    assert shop.done == ["deliver", "delivered"]
    assert graph.replies == [(200, "there")]
    assert [entry.end for entry in run.tape or ()] == ["complete"]


async def deliver(stack: Stack, client: Client) -> str:
    """Call the tool that waits, for the exchange of a stack."""
    assert stack.asked is not None
    meta: Any = {key: stack.asked.header(header)[0] for header, key in META.items()}
    [block] = (await client.call_tool("deliver", {}, meta=meta)).content
    assert isinstance(block, TextContent)
    return block.text


@BOTH
async def test_a_cancelled_call_outside_of_exchanges_is_cancelled_at_the_server(
    tmp_path: Path, mode: Any
) -> None:
    """As without the relay."""
    async with (
        shop_house(tmp_path, Stack(nothing), Stack(nothing)) as (place, shop, _),
        relay(place.gateway, User(), mode, server="shop") as client,
    ):
        call = asyncio.create_task(client.call_tool("deliver", {}))
        await until(lambda: shop.done == ["deliver"])
        call.cancel()
        await until(lambda: shop.done == ["deliver", "cancelled"])
