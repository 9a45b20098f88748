"""MCP servers behind the router: the stacks are unmodified clients of the official SDK."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent, ToolAnnotations

from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.errors import CutoverError
from contract.flows.chat import CHAT
from router.gateway.tool_servers import IDEMPOTENCY_KEY, REFUSED
from tests.support import mcp_tools_server
from tests.support.asgi import served as serving_app
from tests.support.deployment import Deployment, Setup, deployed, until
from tests.support.effects import KEY, Stack, ask, house, served

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

Mode = Literal["auto", "legacy"]
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])


@dataclass
class Shop:
    """An MCP server that counts what its tools really did."""

    done: list[str] = field(default_factory=list)
    lists: int = 0
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    def server(self) -> MCPServer:
        """Make the server."""
        server = MCPServer("shop", log_level="CRITICAL")

        @server.tool(structured_output=False)
        async def order(item: str) -> str:
            """Order an item."""
            self.done.append(f"order {item}")
            return f"{item} is order {len(self.done)}"

        @server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
        async def stock(item: str) -> str:
            """Look how much there is."""
            self.done.append(f"stock {item}")
            return f"7 of {item}"

        @server.tool(structured_output=False)
        async def refuse() -> str:
            """Refuse."""
            self.done.append("refuse")
            why = "out of stock"
            raise ToolError(why)

        @server.tool(structured_output=False)
        async def pack(context: Context) -> str:
            """Pack in two steps."""
            self.done.append("pack")
            await context.report_progress(1, 2, "wrapped")
            await context.report_progress(2, 2, "tied")
            return "packed"

        @server.tool(structured_output=False)
        async def deliver() -> str:
            """Begin, and wait."""
            self.done.append("deliver")
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.done.append("cancelled")
                raise
            self.done.append("delivered")
            return "there"

        @server.tool(structured_output=False)
        async def charge(context: Context) -> str:
            """Charge; the first answer is late."""
            meta = dict(context.request_context.meta or {})
            self.done.append(f"charge {meta.get(IDEMPOTENCY_KEY)}")
            if len(self.done) == 1:
                await self.hold.wait()
            return "charged"

        @server.tool(structured_output=False)
        async def purge() -> str:
            """Delete everything."""
            self.done.append("purge")
            return "gone"

        return server


@asynccontextmanager
async def client_at(
    base: str, path: str = "/mcp/shop", mode: Mode = "auto", **headers: str
) -> AsyncIterator[Client]:
    """Open the SDK's own client at an address of the router."""
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(f"{base}{path}", http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def tools_of(stack: Stack, mode: Mode = "auto") -> AsyncIterator[Client]:
    """Open the client of a stack: the address and the key are all it knows of the router."""
    assert stack.asked is not None
    exchange = stack.asked.header("x-cutover-exchange")[0]
    role = {"x-cutover-role": stack.asked.header("x-cutover-role")[0]}
    key = {"authorization": f"Bearer {stack.key}"}
    path = f"/exchanges/{exchange}/mcp/shop"
    async with client_at(stack.gateway, path, mode, **role, **key) as client:
        yield client


def calling(name: str, mode: Mode = "auto", **arguments: Any) -> Callable[[Stack], Any]:
    """Return the work of a stack that calls one tool and keeps the answer."""

    async def work(stack: Stack) -> None:
        async with tools_of(stack, mode) as client:
            stack.replies.append((200, await outcome(client, name, **arguments)))

    return work


async def outcome(client: Client, name: str, **arguments: Any) -> Any:
    """Return the text of an answer, whether it is an error; or the code of a JSON-RPC error."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        return error.code, (error.data or {}).get("code")
    return text_of(result), result.is_error


def text_of(result: CallToolResult) -> str:
    """Return the text of an answer."""
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@asynccontextmanager
async def shop_house(
    folder: Path,
    legacy: Stack,
    graph: Stack,
    *,
    shadow: float = 0,
    more: str = "",
    named: str = 'tool_servers = ["shop"]',
    pseudonym_key_env: str = "",
) -> AsyncIterator[tuple[Deployment, Shop, Callable[[], None]]]:
    """Deploy a router with the shop behind it; the last of the tuple closes the shop."""
    shop = Shop()
    server = shop.server()
    app = server.streamable_http_app()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.session_manager.run())
        url = await stack.enter_async_context(serving_app(app))
        tools = f'[tools.mcp.shop]\nurl = "{url}/mcp"\ndeny = ["purge"]\n{more}'
        place = await stack.enter_async_context(
            house(
                folder,
                legacy,
                graph,
                shadow=shadow,
                gateway=named,
                more=tools,
                pseudonym_key_env=pseudonym_key_env,
            )
        )
        [connection] = place.services.live.servers
        await until(lambda: connection.session is not None)
        yield place, shop, shop.hold.set


async def nothing(_: Stack) -> None:
    """Do nothing."""


def replies(stack: Stack) -> list[Any]:
    """Return what a stack's tools answered."""
    return [reply for _, reply in stack.replies]


TRACES: Mapping[str, tuple[str, Any]] = {
    "header": ("own", ""),
    "meta": ("", "own"),
    "older header": (f"00-{'9' * 32}-{'9' * 16}-01", "own"),
    "bad meta": ("own", "no trace"),
    "nonsense": ("", ["no", "trace"]),
}
"""What a call has as `traceparent`, in its header and in its message."""


def differences(pair: Pair) -> list[str]:
    """Name what the calls of a pair differ in."""
    return [found.path for found in Comparer(CHAT).compare(pair) if found.layer == "effects"]


@BOTH
async def test_a_shadow_executes_nothing_and_gets_the_answer(tmp_path: Path, mode: Mode) -> None:
    """The order is placed once; the shadow's client reads the same answer."""
    legacy, graph = (Stack(calling("order", mode, item="tea")) for _ in range(2))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert shop.done == ["order tea"]
    assert replies(legacy) == replies(graph) == [("tea is order 1", False)]
    assert isinstance(pair, Pair)
    ordered = [one for one in pair.control.tape or () if one.site == "mcp.shop.order"]
    assert [(one.port, one.op, one.end) for one in ordered] == [("external", "run", "complete")]
    assert {play.how for play in pair.candidate.plays} == {"exact"}
    assert differences(pair) == []


@pytest.mark.parametrize("place_of_it", TRACES)
@BOTH
async def test_a_trace_is_enough_to_know_whose_call_it_is(
    tmp_path: Path, mode: Mode, place_of_it: str
) -> None:
    """In a header, or in the message, where a client's tracing writes it; else the call passes.

    Clients that are traced send the header of the task that opened their connection, too.
    """

    async def work(stack: Stack) -> None:
        headers = {"authorization": f"Bearer {stack.key}"}
        header, traced = TRACES[place_of_it]
        if header:
            headers["traceparent"] = header.replace("own", stack.span)
        meta: Any = {"traceparent": stack.span if traced == "own" else traced}
        async with client_at(stack.gateway, mode=mode, **headers) as client:
            result = await client.call_tool("order", {"item": "tea"}, meta=meta)
            stack.replies.append((200, text_of(result)))

    legacy, graph = Stack(work), Stack(work)
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
        tapes = [run.tape for run in await place.lines() if run.tape is not None]
    known = place_of_it != "nonsense"
    assert shop.done == ["order tea"] * (1 if known else 2)
    assert replies(graph) == [f"tea is order {1 if known else 2}"]
    assert [one.site for one in tapes[0]] == ["mcp.shop.order"] * known


async def test_a_shadow_that_orders_something_else_is_a_finding(tmp_path: Path) -> None:
    """It executes nothing; the report names the argument."""
    legacy = Stack(calling("order", item="tea"))
    graph = Stack(calling("order", item="milk"))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert shop.done == ["order tea"]
    assert isinstance(pair, Pair)
    assert differences(pair) == ["external.run@mcp.shop.order[0].arguments.item"]


@pytest.mark.parametrize("name", ["order", "stock"])
async def test_a_shadow_s_call_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    """By a code that stays; nothing is executed, also where a tool is read-only."""
    legacy, graph = Stack(nothing), Stack(calling(name, item="tea"))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
    assert shop.done == []
    assert replies(graph) == [(REFUSED, "tape_miss")]


async def test_a_fallback_does_not_order_again(tmp_path: Path) -> None:
    """It gets the answer of the stack that failed, and makes calls of its own."""

    async def twice(stack: Stack) -> None:
        async with tools_of(stack) as client:
            for item in ("tea", "milk"):
                stack.replies.append((200, await outcome(client, "order", item=item)))

    legacy, graph = Stack(calling("order", item="tea"), fails=True), Stack(twice)
    async with shop_house(tmp_path, legacy, graph) as (place, shop, _):
        await ask(place)
    assert shop.done == ["order tea", "order milk"]
    assert replies(graph) == [("tea is order 1", False), ("milk is order 2", False)]


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "done"),
    [
        ("refuse", {}, ("Error executing tool refuse: out of stock", True), ["refuse"]),
        ("purge", {}, (INVALID_PARAMS, None), []),
        ("x" * 201, {}, (INVALID_PARAMS, None), []),
        ("stock", {"item": "tea"}, ("7 of tea", False), ["stock tea"]),
    ],
)
async def test_errors_are_answers_of_both(
    tmp_path: Path, name: str, arguments: dict[str, Any], answer: Any, done: list[str]
) -> None:
    """A tool's error is on the tape; a tool that is denied is unknown to everybody."""
    legacy, graph = (Stack(calling(name, **arguments)) for _ in range(2))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
    assert shop.done == done
    assert replies(legacy) == replies(graph) == [answer]


async def test_the_configuration_says_what_is_read_only(tmp_path: Path) -> None:
    """Not the server: its hint counts where the configuration leaves it to it."""
    legacy = Stack(calling("stock", item="tea"))
    more = "read_only = false\n"
    async with shop_house(tmp_path, legacy, Stack(nothing), more=more) as (place, _, _):
        await ask(place)
        run = await served(place)
    assert "run" in {one.op for one in run.tape or () if one.site == "mcp.shop.stock"}


async def test_a_shadow_reads_where_the_configuration_says_so(tmp_path: Path) -> None:
    """What the served run has read is played; another read is made, a write is refused."""

    async def more_than_served(stack: Stack) -> None:
        async with tools_of(stack) as client:
            for name, item in (("stock", "tea"), ("stock", "milk"), ("order", "tea")):
                stack.replies.append((200, await outcome(client, name, item=item)))

    legacy, graph = Stack(calling("stock", item="tea")), Stack(more_than_served)
    more = "shadow_reads = true\n"
    async with shop_house(tmp_path, legacy, graph, shadow=100, more=more) as (place, shop, _):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert shop.done == ["stock tea", "stock milk"]
    assert replies(graph) == [
        ("7 of tea", False),
        ("7 of milk", False),
        (REFUSED, "tape_miss"),
    ]
    assert isinstance(pair, Pair)
    hows = [one.how for one in pair.candidate.plays if one.site != "mcp.shop"]
    assert hows == ["exact", "live", "missed"]


async def test_an_idempotent_tool_is_called_again_after_a_lost_answer(tmp_path: Path) -> None:
    """By the next run alone, with the same key; one that is not stays in doubt."""
    legacy, graph = Stack(calling("charge"), fails=True), Stack(calling("charge"))
    more = 'timeout_seconds = 1.0\nidempotent = ["charge"]\n'
    async with shop_house(tmp_path, legacy, graph, more=more) as (place, shop, _):
        await ask(place)
    assert replies(legacy) == [(REFUSED, "effect_in_doubt")]
    assert replies(graph) == [("charged", False)]
    [first, second] = shop.done
    assert first == second
    assert len(first) == len("charge ") + 32


@BOTH
async def test_lists_pass_and_are_on_no_tape(tmp_path: Path, mode: Mode) -> None:
    """Both runs see the same tools, as the server describes them, without those denied.

    A shadow lists them also where the served run did not, and that is no difference.
    """

    async def listing(stack: Stack) -> None:
        async with tools_of(stack, mode) as client:
            page = await client.list_tools()
            stack.replies.append((200, [(one.name, one.description) for one in page.tools]))

    legacy, graph = Stack(listing), Stack(listing)
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, _, _):
        await ask(place)
        run = await served(place)
    [listed] = replies(legacy)
    assert listed[0] == ("order", "Order an item.")
    assert "purge" not in {name for name, _ in listed}
    assert replies(graph) == [listed]
    assert run.tape == ()


@BOTH
async def test_progress_passes_and_is_played(tmp_path: Path, mode: Mode) -> None:
    """The stack sees each step while the tool runs, the shadow when it plays them."""

    async def packing(stack: Stack) -> None:
        steps: list[Any] = []

        async def step(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        async with tools_of(stack, mode) as client:
            result = await client.call_tool("pack", {}, progress_callback=step)
            stack.replies.append((200, (steps, text_of(result))))

    legacy, graph = Stack(packing), Stack(packing)
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
    assert shop.done == ["pack"]
    assert replies(legacy) == [([(1, 2, "wrapped"), (2, 2, "tied")], "packed")]
    assert replies(graph) == replies(legacy)


async def test_a_write_whose_answer_is_lost_is_in_doubt(tmp_path: Path) -> None:
    """The stack is told so, and neither it nor a fallback makes the tool run again."""
    legacy, graph = Stack(calling("deliver"), fails=True), Stack(calling("deliver"))
    more = "timeout_seconds = 1.0\n"
    async with shop_house(tmp_path, legacy, graph, more=more) as (place, shop, _):
        await ask(place)
        run = await served(place)
    assert shop.done.count("deliver") == 1
    assert replies(legacy) == replies(graph) == [(REFUSED, "effect_in_doubt")]
    [entry] = [one for one in run.tape or () if one.site == "mcp.shop.deliver"]
    assert entry.fault is not None
    assert entry.fault.code == "effect_in_doubt"


async def test_a_client_that_leaves_does_not_stop_a_write(tmp_path: Path) -> None:
    """A call of a run goes on to its end, and the fallback gets its answer."""
    shops: list[Shop] = []

    async def leaving(stack: Stack) -> None:
        async with tools_of(stack) as client:
            call = asyncio.get_running_loop().create_task(client.call_tool("deliver", {}))
            await until(lambda: shops[0].done == ["deliver"])
            call.cancel()
            await asyncio.wait({call})
        shops[0].hold.set()

    legacy, graph = Stack(leaving, fails=True), Stack(calling("deliver"))
    async with shop_house(tmp_path, legacy, graph) as (place, shop, _):
        shops.append(shop)
        await ask(place)
    assert shop.done == ["deliver", "delivered"]
    assert replies(graph) == [("there", False)]


@BOTH
async def test_without_an_exchange_calls_pass(tmp_path: Path, mode: Mode) -> None:
    """As through any proxy: each is executed, and its progress passes."""
    steps: list[object] = []

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with shop_house(tmp_path, Stack(nothing), Stack(nothing)) as (place, shop, _):
        key = {"authorization": f"Bearer {KEY}"}
        async with client_at(place.gateway, mode=mode, **key) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            twice = [await outcome(client, "order", item="tea") for _ in range(2)]
            failed = await outcome(client, "refuse")
            await client.call_tool("pack", {}, progress_callback=step)
    assert tools == ["order", "stock", "refuse", "pack", "deliver", "charge"]
    assert twice == [("tea is order 1", False), ("tea is order 2", False)]
    assert failed == ("Error executing tool refuse: out of stock", True)
    assert shop.done == ["order tea", "order tea", "refuse", "pack"]
    assert steps == [(1, 2, "wrapped"), (2, 2, "tied")]


async def test_without_an_exchange_a_client_that_leaves_stops_its_call(tmp_path: Path) -> None:
    """The server is told to cancel it; there is no stream of the server's own to GET."""
    async with shop_house(tmp_path, Stack(nothing), Stack(nothing)) as (place, shop, _):
        async with client_at(place.gateway, authorization=f"Bearer {KEY}") as client:
            call = asyncio.get_running_loop().create_task(client.call_tool("deliver", {}))
            await until(lambda: shop.done == ["deliver"])
            call.cancel()
            await until(lambda: shop.done == ["deliver", "cancelled"])
        async with place.session.get(f"{place.gateway}/mcp/shop") as response:
            assert response.status == 405


async def test_an_older_client_cancels_its_call_by_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one of its own session and id: another client's call of the same id goes on."""
    async with shop_house(tmp_path, Stack(nothing), Stack(nothing)) as (place, shop, let_go):
        key = {"authorization": f"Bearer {KEY}"}
        async with (
            client_at(place.gateway, mode="legacy", **key) as one,
            client_at(place.gateway, mode="legacy", **key) as other,
        ):
            calls = []
            for client in (one, other):
                count = len(shop.done) + 1
                task = asyncio.get_running_loop().create_task(client.call_tool("deliver", {}))
                calls.append(task)
                await until(lambda count=count: len(shop.done) == count)  # type: ignore[misc]
            calls[0].cancel()
            await until(lambda: "cancelled" in shop.done)
            let_go()
            assert text_of(await calls[1]) == "there"
    assert shop.done == ["deliver", "deliver", "cancelled", "delivered"]
    assert "uvicorn.error" not in {one.name for one in caplog.records if one.levelname == "ERROR"}


async def test_a_server_that_is_away_executes_nothing(tmp_path: Path) -> None:
    """Its clients get a code that stays, in and outside of exchanges."""
    legacy = Stack(calling("order", item="tea"))
    more = '[tools.mcp.shop]\nurl = "http://127.0.0.1:9/mcp"\n'
    async with house(
        tmp_path, legacy, Stack(nothing), gateway='tool_servers = ["shop"]', more=more
    ) as place:
        await ask(place)
        async with client_at(place.gateway, authorization=f"Bearer {KEY}") as client:
            alone = await outcome(client, "order", item="tea")
    assert [*replies(legacy), alone] == [(REFUSED, "server_away")] * 2


async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt(tmp_path: Path) -> None:
    """A process started by the router: what it had begun is not begun again when it is back."""
    legacy, graph = Stack(calling("crash"), fails=True), Stack(calling("crash"))
    command = json.dumps([sys.executable, mcp_tools_server.__file__])
    more = f"[tools.mcp.shop]\ncommand = {command}\n"
    gateway = 'tool_servers = ["shop"]'
    async with house(tmp_path, legacy, graph, gateway=gateway, more=more) as place:
        [connection] = place.services.live.servers
        await until(lambda: connection.session is not None)
        await ask(place)
        run = await served(place)
    assert replies(legacy) == replies(graph) == [(REFUSED, "effect_in_doubt")]
    [entry] = [one for one in run.tape or () if one.site == "mcp.shop.crash"]
    assert (entry.op, entry.end) == ("run", "error")


CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{}}}'


async def test_who_may_call(tmp_path: Path) -> None:
    """Who shows the key, for an exchange that is open: its id alone opens nothing."""
    legacy = Stack(nothing)
    named = "/exchanges/{}/mcp/shop"
    async with shop_house(tmp_path, legacy, Stack(nothing)) as (place, shop, _):
        await ask(place)
        assert legacy.asked is not None
        over = legacy.asked.header("x-cutover-exchange")[0]
        right, wrong = f"Bearer {KEY}", "Bearer wrong"
        answers = [
            await post(place, "/mcp/shop", CALL, authorization=wrong),
            await post(place, "/mcp/shop", CALL),
            await post(place, named.format(over), CALL),
            await post(place, named.format(over), CALL, authorization=right),
            await post(
                place, "/mcp/shop", CALL, authorization=right, **{"x-cutover-exchange": over}
            ),
            await post(place, "/mcp/other", CALL, authorization=right),
        ]
    assert answers == [
        (401, "invalid_api_key"),
        (401, "invalid_api_key"),
        (401, "invalid_api_key"),
        (404, "unknown_exchange"),
        (404, "unknown_exchange"),
        (404, "unknown_server"),
    ]
    assert shop.done == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"id": 1}', b"\xff", b"[" * 5_000])
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_messages_that_are_none(tmp_path: Path, body: bytes, version: str) -> None:
    """The SDK refuses them; nothing reaches the server."""
    async with shop_house(tmp_path, Stack(nothing), Stack(nothing)) as (place, shop, _):
        more = {"authorization": f"Bearer {KEY}", "mcp-protocol-version": version}
        status, code = await post(place, "/mcp/shop", body, **more)
    assert (status, type(code), shop.done) == (400, int, [])


async def test_tool_servers_need_a_key_and_are_named(tmp_path: Path) -> None:
    """A configuration without a key, or with a server that is not there, is refused."""
    for wrong in ('tool_servers = ["shop"]', 'key_env = "GATEWAY_KEY"\ntool_servers = ["shop"]'):
        more = f"[gateway]\nenabled = true\n{wrong}"
        with pytest.raises(CutoverError, match=r"gateway\.tool_servers"):
            async with deployed(tmp_path, Setup(more=more, environ={"GATEWAY_KEY": KEY})):
                pass
    async with deployed(tmp_path) as place:
        assert (await post(place, "/mcp/shop", CALL))[0] == 404


async def post(place: Deployment, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """Post a message by hand; return the status and the code of the error."""
    accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    url = f"{place.gateway}{path}"
    async with place.session.post(url, data=body, headers=accept | headers) as response:
        answer = await response.json()
        return response.status, answer.get("error", {}).get("code") if answer else None
