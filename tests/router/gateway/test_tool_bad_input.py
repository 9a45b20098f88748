"""Bad input to the tool gateway: a stable code for each, nothing executed, nothing left open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.router.gateway.test_asking_servers import nothing, store_house, working
from tests.router.gateway.test_tool_servers import CALL, calling, replies, shop_house
from tests.router.gateway.test_tool_servers import nothing as idle
from tests.support.deployment import Deployment, tasks, until
from tests.support.effects import KEY, Stack, ask

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "authorization": f"Bearer {KEY}",
    "mcp-protocol-version": "2025-06-18",
}
BUY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "buy", "arguments": {"item": "tea"}},
}


async def post(place: Deployment, body: object) -> int:
    """Post a message to the store by hand; returns the status."""
    url = f"{place.gateway}/mcp/store"
    data = json.dumps(body).encode()
    async with place.session.post(url, data=data, headers=HEADERS) as response:
        return response.status


async def event(stream: aiohttp.StreamReader) -> Any:
    """Read the next event."""
    async for line in stream:
        if line.startswith(b"data: ") and len(line) > len(b"data: \r\n"):
            return json.loads(line.removeprefix(b"data: "))
    raise AssertionError


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"result": {"action": "perhaps"}}, -32602),
        ({"result": None}, -32602),
        ({"result": [1]}, -32602),
        ({"error": {"code": -1, "message": "no"}}, -1),
        ({"error": {"code": "x"}}, -32000),
    ],
)
async def test_an_answer_that_is_none_ends_the_call(
    tmp_path: Path, modern: bool, answer: dict[str, Any], code: int
) -> None:
    """The client gets a code; nothing is bought, and the server is not held up."""
    both = working(nothing), working(nothing)
    async with store_house(tmp_path, *both, modern=modern) as (place, store):
        url = f"{place.gateway}/mcp/store"
        async with place.session.post(url, json=BUY, headers=HEADERS) as response:
            asked = await event(response.content)
            assert asked["method"] == "elicitation/create"
            wrong = [
                {"jsonrpc": "2.0", "id": "cutover-question-0", "result": {"action": "accept"}},
                {"jsonrpc": "2.0", "id": asked["id"], "method": "ping"},
            ]
            statuses = [await post(place, one) for one in wrong]
            statuses.append(await post(place, {"jsonrpc": "2.0", "id": asked["id"], **answer}))
            ended = await event(response.content)
        statuses.append(await post(place, {"jsonrpc": "2.0", "id": asked["id"], **answer}))
        await until(lambda: not tasks("mcp call"))
    assert statuses == [202, 200, 202, 202]
    assert (ended["id"], ended["error"]["code"]) == (1, code)
    assert store.done == []


async def test_a_client_that_leaves_with_a_question_open_ends_the_call(tmp_path: Path) -> None:
    """Outside of exchanges; the server's call is cancelled."""
    both = working(nothing), working(nothing)
    async with store_house(tmp_path, *both, modern=False) as (place, store):
        url = f"{place.gateway}/mcp/store"
        async with place.session.post(url, json=BUY, headers=HEADERS) as response:
            await event(response.content)
            response.close()
        await until(lambda: not tasks("mcp call"))
    assert store.done == []


async def test_a_message_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Before it is read to its end, by the gateway's own code."""
    named = 'tool_servers = ["shop"]\nmax_body_bytes = 1000'
    async with shop_house(tmp_path, Stack(idle), Stack(idle), named=named) as (place, shop, _):
        for body, status in ((CALL + b" " * 1_000, 413), (CALL, 200)):
            url = f"{place.gateway}/mcp/shop"
            async with place.session.post(url, data=body, headers=HEADERS) as response:
                assert response.status == status
                if status == 413:
                    refused = await response.json()
                    assert refused["error"]["code"] == "body_too_large"
    assert shop.done == []


async def test_a_call_that_is_too_large_for_the_tape_is_executed_and_has_no_shadow(
    tmp_path: Path,
) -> None:
    """The stack gets its answer whole; the ledger says why there is no comparison."""
    item = "x" * 3_000_000
    legacy, graph = (Stack(calling("order", item=item)) for _ in range(2))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
        books = place.books()
    assert shop.done == [f"order {item}"]
    assert replies(legacy) == [(f"{item} is order 1", False)]
    assert replies(graph) == []
    assert books == {"dropped(size)": 1}


async def test_a_call_that_its_server_does_not_take_is_an_error_of_both(tmp_path: Path) -> None:
    """Larger than the server reads: nothing is executed."""
    legacy = Stack(calling("order", item="x" * 5_000_000))
    async with shop_house(tmp_path, legacy, Stack(idle)) as (place, shop, _):
        await ask(place)
    assert shop.done == []
    assert replies(legacy) == [(-32603, None)]
