"""`cutover mcp -- COMMAND`: a server that a client starts itself, with the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import RequestParamsMeta, TextContent

from cutover.bridge import REFUSED
from tests.support import mcp_till
from tests.support.deployment import until
from tests.support.effects import KEY, Stack, ask, house, served

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

META = {"x-cutover-exchange": "cutover/exchange", "x-cutover-role": "cutover/role"}
Work = Callable[[Client, dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def till(sales: Path, mode: Any = "auto", **environ: str) -> AsyncIterator[Client]:
    """Open a client that starts the server through the bridge."""
    bridge = ["-m", "cutover", "mcp", "--name", "till", "--"]
    started = StdioServerParameters(
        command=sys.executable,
        args=[*bridge, sys.executable, mcp_till.__file__, str(sales)],
        env={**os.environ, **environ},
        cwd=Path(mcp_till.__file__).parents[2],
    )
    async with Client(started, mode=mode) as client:
        yield client


async def outcome(client: Client, name: str, meta: dict[str, Any], **arguments: Any) -> Any:
    """Return the text of an answer and whether it is an error; or codes of a JSON-RPC error."""
    named: RequestParamsMeta = meta  # type: ignore[assignment] # any keys are allowed
    try:
        result = await client.call_tool(name, arguments, meta=named)
    except MCPError as error:
        return error.code, (error.data or {}).get("code")
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text, result.is_error


def sold(sales: Path) -> list[str]:
    """Return what the server really did."""
    return sales.read_text("utf-8").splitlines() if sales.exists() else []


class TillHouse:
    """Two services, each with one server process for all its requests, behind a router."""

    def __init__(self, sales: Path, work: Work) -> None:
        self.sales = sales
        self.clients: dict[int, Client] = {}
        self.legacy, self.graph = Stack(self._run), Stack(self._run)
        self._work = work

    async def _run(self, stack: Stack) -> None:
        assert stack.asked is not None
        meta = {key: stack.asked.header(header)[0] for header, key in META.items()}
        stack.replies.append((200, await self._work(self.clients[id(stack)], meta)))

    @asynccontextmanager
    async def opened(self, folder: Path, mode: Any = "auto", **more: Any) -> AsyncIterator[Any]:
        """Deploy them."""
        async with house(folder, self.legacy, self.graph, **more) as place:
            known = {"CUTOVER_URL": place.gateway, "GATEWAY_KEY": KEY}
            async with (
                till(self.sales, mode, **known) as one,
                till(self.sales, mode, **known) as two,
            ):
                self.clients = {id(self.legacy): one, id(self.graph): two}
                yield place


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_one_process_serves_many_exchanges_and_each_sells_once(
    tmp_path: Path, mode: Any
) -> None:
    """A shadow is played the sale and its progress; each call says which exchange it is of."""

    async def selling(client: Client, meta: dict[str, Any]) -> Any:
        steps: list[Any] = []

        async def step(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        named: RequestParamsMeta = meta  # type: ignore[assignment] # any keys are allowed
        result = await client.call_tool("sell", {"item": "tea"}, progress_callback=step, meta=named)
        [block] = result.content
        assert isinstance(block, TextContent)
        return block.text, steps

    both = TillHouse(tmp_path / "sales", selling)
    async with both.opened(tmp_path, mode, shadow=100) as place:
        for _ in range(2):
            await ask(place)
        records = [one for one in await place.lines() if one.tape]
    assert sold(both.sales) == ["sell tea"] * 2
    assert [reply for _, reply in both.legacy.replies] == [("tea is sold", [(1, 2, "packed")])] * 2
    assert both.graph.replies == both.legacy.replies
    entries = [entry for run in records for entry in run.tape or ()]
    facts = [(entry.op, entry.site, entry.end) for entry in entries]
    assert facts == [("run", "mcp.till.sell", "complete")] * 2


async def test_a_fallback_is_played_what_was_sold_and_refused(tmp_path: Path) -> None:
    """A tool's error is an answer like any other."""

    async def work(client: Client, meta: dict[str, Any]) -> Any:
        return [
            await outcome(client, "sell", meta, item="tea"),
            await outcome(client, "refuse", meta),
        ]

    both = TillHouse(tmp_path / "sales", work)
    both.legacy.fails = True
    async with both.opened(tmp_path) as place:
        await ask(place)
    assert sold(both.sales) == ["sell tea", "refuse"]
    assert both.graph.replies == both.legacy.replies
    [(_, [first, (text, failed)])] = both.graph.replies
    assert first == ("tea is sold", False)
    assert failed
    assert "closed" in text


async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt(tmp_path: Path) -> None:
    """The lease ends; whoever asks later is told so, and nothing is sold again."""

    async def work(client: Client, meta: dict[str, Any]) -> Any:
        return await outcome(client, "crash", meta)

    both = TillHouse(tmp_path / "sales", work)
    both.legacy.fails = True
    limits = "[limits]\nloop_seconds = 0.0\ntool_seconds = 0.5\nwrite_seconds = 1.0\n"
    async with both.opened(tmp_path, more=limits) as place:
        await ask(place)
        run = await served(place)
    assert sold(both.sales) == ["crash"]
    [(_, first)], [(_, second)] = both.legacy.replies, both.graph.replies
    assert first[0] in {REFUSED, -32000}
    assert second == (REFUSED, "effect_in_doubt")
    [entry] = run.tape or ()
    assert entry.fault is not None
    assert entry.fault.code in {"effect_in_doubt", "deadline"}, "here both end at once"


async def test_a_call_for_an_exchange_that_is_over_is_refused(tmp_path: Path) -> None:
    """It may be a late shadow's; a trace alone, of which no exchange is known, passes."""

    async def nothing(client: Client, meta: dict[str, Any]) -> Any:
        return client, meta

    both = TillHouse(tmp_path / "sales", nothing)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with both.opened(tmp_path) as place:
        await ask(place)
        [(_, (client, meta))] = both.legacy.replies
        late = await outcome(client, "sell", meta, item="late")
        traced = await outcome(client, "sell", {"traceparent": trace}, item="traced")
    assert late == (REFUSED, "unknown_exchange")
    assert traced == ("traced is sold", False)
    assert sold(both.sales) == ["sell traced"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_without_an_exchange_it_is_a_plain_proxy(tmp_path: Path, mode: Any) -> None:
    """Also without a router; and the server does not get the gateway's key."""
    sales = tmp_path / "sales"
    async with till(sales, mode, GATEWAY_KEY="secret") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        twice = [await outcome(client, "sell", {}, item="tea") for _ in range(2)]
        variables, _ = await outcome(client, "environment", {})
    assert tools == ["sell", "refuse", "crash", "slow", "deliver", "environment"]
    assert twice == [("tea is sold", False)] * 2
    assert sold(sales) == ["sell tea"] * 2
    assert "GATEWAY_KEY" not in variables.split()


async def test_an_exchange_without_a_router_is_refused(tmp_path: Path) -> None:
    """In a variable, too: executed it would be a shadow's write."""
    async with till(tmp_path / "sales", CUTOVER_EXCHANGE="one") as client:
        assert await outcome(client, "sell", {}, item="tea") == (REFUSED, "gateway_not_named")
    gone = {"CUTOVER_URL": "http://127.0.0.1:9", "GATEWAY_KEY": KEY, "CUTOVER_EXCHANGE": "one"}
    async with till(tmp_path / "sales", **gone) as client:
        assert await outcome(client, "sell", {}, item="tea") == (REFUSED, "gateway_unreachable")
    assert sold(tmp_path / "sales") == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_of_an_exchange_goes_on_to_its_end(
    tmp_path: Path, mode: Any
) -> None:
    """What is delivered cannot be called back: the record and the successor have its answer."""
    sales = tmp_path / "sales"

    async def work(client: Client, meta: dict[str, Any]) -> Any:
        if sold(sales):  # the successor
            return await outcome(client, "deliver", meta)
        call = asyncio.create_task(outcome(client, "deliver", meta))
        await until(lambda: sold(sales) == ["deliver"])
        call.cancel()
        await asyncio.wait({call})
        return sales.with_name("deliver").touch()

    both = TillHouse(sales, work)
    both.legacy.fails = True
    async with both.opened(tmp_path, mode) as place:
        await ask(place)
        run = await served(place)
    assert sold(sales) == ["deliver", "delivered"]
    assert both.graph.replies == [(200, ("there", False))]
    assert [entry.end for entry in run.tape or ()] == ["complete"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancelled_call_outside_of_exchanges_is_cancelled_at_the_server(
    tmp_path: Path, mode: Any
) -> None:
    """As without the bridge."""
    sales = tmp_path / "sales"
    async with till(sales, mode) as client:
        call = asyncio.create_task(outcome(client, "deliver", {}))
        await until(lambda: sold(sales) == ["deliver"])
        call.cancel()
        await until(lambda: sold(sales) == ["deliver", "cancelled"])


async def test_what_is_no_message_passes_as_it_is() -> None:
    """It is the server's to refuse."""
    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    command = ["-m", "cutover", "mcp", "--", sys.executable, "-c", echo]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(mcp_till.__file__).parents[2],
    )
    lines = [b"{\n", b"[]\n", b"\xff\n", json.dumps({"id": 1}).encode() + b"\n", b"\n"]
    out, _ = await process.communicate(b"".join(lines))
    assert out == b"".join(lines)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--", "/not/there"], {}, "cannot be started: no such file"),
        ([], {}, "name one of a command"),
        (["--server", "shop"], {}, "with CUTOVER_URL set"),
        (["--", "true"], {"CUTOVER_URL": "http://127.0.0.1:9"}, "'GATEWAY_KEY' must hold"),
    ],
)
def test_what_cannot_be_started_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environ: dict[str, str], said: str
) -> None:
    """Status 2 and a sentence."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-m", "cutover", "mcp", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
