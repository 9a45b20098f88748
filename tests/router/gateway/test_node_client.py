"""The tool gateway with a client of another SDK: the official one for TypeScript, unmodified."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.router.gateway.test_asking_servers import store_house
from tests.router.gateway.test_tool_servers import shop_house
from tests.support.effects import KEY, Stack, ask

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

NODE = Path(__file__).parents[2] / "support" / "mcp_node"
Step = tuple[str, dict[str, Any] | None]


@pytest.fixture(autouse=True)
def node() -> None:
    """Skip where there is no Node.js, or its package could not be fetched; fail under CI."""
    if shutil.which("node") is None or not (NODE / "node_modules").exists():
        missing = f"no node, or no `npm ci` in {NODE.name}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)


async def node_client(
    url: str, headers: dict[str, str], *steps: Step, answers: bool = True
) -> dict[str, Any]:
    """Take some steps with the client, and return what came of them."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "node", str(NODE / "client.mjs"), url, stdin=pipe, stdout=pipe, stderr=pipe
    )
    told = json.dumps({"headers": headers, "answers": answers, "steps": steps}).encode()
    out, said = await process.communicate(told)
    assert process.returncode == 0, said.decode()
    found: dict[str, Any] = json.loads(out)
    return found


def working(server: str, *steps: Step, answers: bool = True, fails: bool = False) -> Stack:
    """Return a stack that takes some steps with the client, and keeps what came of them."""

    async def work(stack: Stack) -> None:
        assert stack.asked is not None
        names = ("x-cutover-exchange", "x-cutover-role")
        headers = {name: stack.asked.header(name)[0] for name in names}
        headers["authorization"] = f"Bearer {stack.key}"
        url = f"{stack.gateway}/mcp/{server}"
        found = await node_client(url, headers, *steps, answers=answers)
        stack.replies.append((200, found))

    return Stack(work, fails=fails)


def tool(name: str, **arguments: Any) -> Step:
    """Return the step that calls a tool."""
    return "callTool", {"name": name, "arguments": arguments}


async def test_tools_lists_errors_and_progress_pass_once(tmp_path: Path) -> None:
    """A shadow's client reads the same and executes nothing."""
    steps = (
        ("listTools", None),
        tool("order", item="tea"),
        tool("pack"),
        tool("refuse"),
        tool("purge"),
    )
    legacy, graph = (working("shop", *steps) for _ in range(2))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
    assert shop.done == ["order tea", "pack", "refuse"]
    assert graph.replies == legacy.replies
    [(_, found)] = legacy.replies
    listed, ordered, packed, refused, unknown = found["replies"]
    assert "order" in {one["name"] for one in listed["result"]["tools"]}
    assert ordered["result"]["content"][0]["text"] == "tea is order 1"
    assert packed["progress"] == ["wrapped", "tied"]
    assert refused["result"]["isError"]
    assert unknown["code"] == -32602


async def test_a_shadow_s_call_of_its_own_has_a_stable_code(tmp_path: Path) -> None:
    """As every client gets it."""
    legacy, graph = working("shop"), working("shop", tool("order", item="tea"))
    async with shop_house(tmp_path, legacy, graph, shadow=100) as (place, shop, _):
        await ask(place)
    assert shop.done == []
    [(_, found)] = graph.replies
    assert found["replies"] == [{"code": -32050, "data": {"code": "tape_miss"}}]


@pytest.mark.parametrize("modern", [True, False])
async def test_questions_and_reads_pass(tmp_path: Path, modern: bool) -> None:
    """It answers by messages of its own, which find the question without a session."""
    steps = (
        tool("buy", item="tea"),
        tool("praise", item="tea"),
        ("readResource", {"uri": "store://opening"}),
        ("getPrompt", {"name": "greet", "arguments": {"name": "Ann"}}),
    )
    legacy, graph = (working("store", *steps) for _ in range(2))
    async with store_house(tmp_path, legacy, graph, modern=modern, shadow=100) as (place, store):
        await ask(place)
    assert store.done == ["buy 3 tea", "praise tea", "read opening", "greet Ann"]
    assert graph.replies == legacy.replies
    [(_, found)] = legacy.replies
    bought, praised, read, prompt = (reply["result"] for reply in found["replies"])
    assert bought["content"][0]["text"] == "3 of tea bought"
    assert praised["content"][0]["text"] == "Tea!"
    assert read["contents"][0]["text"] == "nine to five"
    assert prompt["messages"][0]["content"]["text"] == "Greet Ann."
    assert found["asked"] == ["How many tea?", "A slogan for tea"]
    assert found["instructions"]


@pytest.mark.parametrize("modern", [True, False])
async def test_a_client_that_cannot_be_asked_ends_the_call(tmp_path: Path, modern: bool) -> None:
    """Nothing is bought, and the server's call does not stay open."""
    legacy = working("store", tool("buy", item="tea"), answers=False)
    async with store_house(tmp_path, legacy, working("store"), modern=modern) as (place, store):
        await ask(place)
        [connection] = place.services.live.servers
    assert store.done == []
    [(_, found)] = legacy.replies
    assert found["replies"][0]["code"] == -32601
    assert connection.name == "store"


async def test_it_works_without_an_exchange(tmp_path: Path) -> None:
    """The router is a plain proxy."""
    idle = working("store"), working("store")
    async with store_house(tmp_path, *idle, modern=False) as (place, store):
        key = {"authorization": f"Bearer {KEY}"}
        url = f"{place.gateway}/mcp/store"
        found = await node_client(url, key, tool("buy", item="tea"))
    assert store.done == ["buy 3 tea"]
    assert found["replies"][0]["result"]["content"][0]["text"] == "3 of tea bought"
