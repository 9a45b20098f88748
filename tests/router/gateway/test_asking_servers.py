"""MCP servers that ask back, and what they have beside tools, behind the router."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    PromptReference,
    TextContent,
    TextResourceContents,
)

from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.flows.chat import CHAT
from tests.support.asking_servers import INSTRUCTIONS, Store, serving_store
from tests.support.deployment import Deployment, until
from tests.support.effects import KEY, Stack, ask, house, served

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

Mode = Literal["auto", "legacy"]
Work = Callable[[Client], Awaitable[Any]]
CLIENTS = pytest.mark.parametrize("mode", ["auto", "legacy"])
SERVERS = pytest.mark.parametrize("modern", [True, False])


class User:
    """Answers what clients are asked, and notes the questions."""

    def __init__(self, count: int = 3, action: Literal["accept", "decline"] = "accept") -> None:
        self.asked: list[str] = []
        self._count = count
        self._action = action

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        """Answer a question to the user."""
        assert context is not None
        self.asked.append(params.message)
        content: Any = {"count": self._count} if self._action == "accept" else None
        return ElicitResult(action=self._action, content=content)

    async def sample(self, context: Any, params: Any) -> CreateMessageResult:
        """Answer a question to the model."""
        assert context is not None
        self.asked.append(params.messages[0].content.text)
        return CreateMessageResult(
            role="assistant", content=TextContent(text="Tea!"), model="m", stop_reason="endTurn"
        )


@asynccontextmanager
async def store_client(url: str, user: User, mode: Mode, **headers: str) -> AsyncIterator[Client]:
    """Open the SDK's own client for a user."""
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            cache=None,
        ) as client,
    ):
        yield client


def working(work: Work, mode: Mode = "auto", user: User | None = None) -> Stack:
    """Return a stack that does something with its client, and keeps what came of it."""

    async def run(stack: Stack) -> None:
        assert stack.asked is not None
        exchange = stack.asked.header("x-cutover-exchange")[0]
        headers = {
            "x-cutover-role": stack.asked.header("x-cutover-role")[0],
            "authorization": f"Bearer {stack.key}",
        }
        url = f"{stack.gateway}/exchanges/{exchange}/mcp/store"
        async with store_client(url, user or User(), mode, **headers) as client:
            try:
                stack.replies.append((200, await work(client)))
            except MCPError as error:
                stack.replies.append((error.code, error.message))

    return Stack(run)


@asynccontextmanager
async def store_house(
    folder: Path, legacy: Stack, graph: Stack, *, modern: bool, shadow: float = 0, more: str = ""
) -> AsyncIterator[tuple[Deployment, Store]]:
    """Deploy a router with the store behind it."""
    store = Store()
    async with serving_store(store, modern=modern) as url:
        tools = f'[tools.mcp.store]\nurl = "{url}/mcp"\n{more}'
        named = 'tool_servers = ["store"]'
        async with house(folder, legacy, graph, shadow=shadow, gateway=named, more=tools) as place:
            [connection] = place.services.live.servers
            await until(lambda: connection.session is not None)
            yield place, store


async def buy(client: Client) -> Any:
    """Buy tea, which asks the user."""
    result = await client.call_tool("buy", {"item": "tea"})
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text, result.is_error


async def praise(client: Client) -> Any:
    """Praise tea, which asks the client's model."""
    result = await client.call_tool("praise", {"item": "tea"})
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text, result.is_error


async def nothing(_: Client) -> None:
    """Do nothing."""


def differences(pair: object) -> list[str]:
    """Name what the calls of a pair differ in."""
    assert isinstance(pair, Pair)
    return [found.path for found in Comparer(CHAT).compare(pair) if found.layer == "effects"]


@CLIENTS
@SERVERS
async def test_a_question_passes_and_a_shadow_is_asked_it_and_executes_nothing(
    tmp_path: Path, mode: Mode, modern: bool
) -> None:
    """Whatever versions client and server speak: both users are asked, one purchase is made."""
    users = User(), User()
    legacy, graph = (working(buy, mode, user) for user in users)
    async with store_house(tmp_path, legacy, graph, modern=modern, shadow=100) as (place, store):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert store.done == ["buy 3 tea"]
    assert [reply for _, reply in legacy.replies] == [("3 of tea bought", False)]
    assert graph.replies == legacy.replies
    assert [user.asked for user in users] == [["How many tea?"]] * 2
    assert isinstance(pair, Pair)
    rounds = [one for one in pair.control.tape or () if one.site == "mcp.store.buy"]
    assert [(one.op, one.end) for one in rounds] == [("run", "complete")] * 2
    assert {play.how for play in pair.candidate.plays} == {"exact"}
    assert differences(pair) == []


async def test_a_client_of_another_version_is_played_the_same(tmp_path: Path) -> None:
    """The tape has one form for both."""
    legacy, graph = working(buy, "auto"), working(buy, "legacy")
    async with store_house(tmp_path, legacy, graph, modern=False, shadow=100) as (place, store):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert store.done == ["buy 3 tea"]
    assert graph.replies == legacy.replies
    assert differences(pair) == []


async def test_another_answer_of_the_shadow_s_user_is_a_finding(tmp_path: Path) -> None:
    """It gets the recorded result; the report names what was answered otherwise."""
    legacy, graph = working(buy), working(buy, user=User(count=4))
    async with store_house(tmp_path, legacy, graph, modern=True, shadow=100) as (place, store):
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert store.done == ["buy 3 tea"]
    assert graph.replies == legacy.replies
    [path] = differences(pair)
    assert path.startswith("external.run@mcp.store.buy[1].arguments.answers.")
    assert path.endswith(".content.count")


@CLIENTS
@SERVERS
async def test_a_fallback_answers_and_buys_once(tmp_path: Path, mode: Mode, modern: bool) -> None:
    """It is asked what the stack that failed was asked, and gets its purchase."""
    legacy, graph = working(buy, mode), working(buy, mode)
    legacy.fails = True
    async with store_house(tmp_path, legacy, graph, modern=modern) as (place, store):
        await ask(place)
    assert store.done == ["buy 3 tea"]
    assert graph.replies == legacy.replies


@CLIENTS
@SERVERS
async def test_a_question_that_is_declined(tmp_path: Path, mode: Mode, modern: bool) -> None:
    """It is the server's to say what follows."""
    legacy = working(buy, mode, User(action="decline"))
    async with store_house(tmp_path, legacy, working(nothing), modern=modern) as (place, store):
        await ask(place)
    assert store.done == []
    [(_, (text, failed))] = legacy.replies
    assert failed
    assert "declin" in text.lower()


@CLIENTS
@SERVERS
async def test_questions_to_the_client_s_model_pass(
    tmp_path: Path, mode: Mode, modern: bool
) -> None:
    """As those to its user do."""
    legacy, graph = working(praise, mode), working(praise, mode)
    async with store_house(tmp_path, legacy, graph, modern=modern, shadow=100) as (place, store):
        await ask(place)
    assert store.done == ["praise tea"]
    assert [reply for _, reply in legacy.replies] == [("Tea!", False)]
    assert graph.replies == legacy.replies


async def read_all(client: Client) -> Any:
    """Read everything there is beside tools."""
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    prompts = await client.list_prompts()
    contents = [
        one.text
        for uri in ("store://opening", "store://shelf/one")
        for one in (await client.read_resource(uri)).contents
        if isinstance(one, TextResourceContents)
    ]
    prompt = await client.get_prompt("greet", {"name": "Ann"})
    reference = PromptReference(name="greet")
    completed = await client.complete(reference, {"name": "name", "value": "An"})
    return {
        "instructions": client.instructions,
        "lists": [
            *(str(one.uri) for one in resources.resources),
            *(one.uri_template for one in templates.resource_templates),
            *(one.name for one in prompts.prompts),
        ],
        "contents": contents,
        "prompt": [one.content.text for one in prompt.messages if one.content.type == "text"],
        "completed": completed.completion.values,
    }


@CLIENTS
@SERVERS
async def test_resources_prompts_and_completions_are_reads_on_the_tape(
    tmp_path: Path, mode: Mode, modern: bool
) -> None:
    """A shadow is played them, and the server is asked once; its instructions pass as well."""
    legacy, graph = working(read_all, mode), working(read_all, mode)
    async with store_house(tmp_path, legacy, graph, modern=modern, shadow=100) as (place, store):
        await ask(place)
        run = await served(place)
    [(status, found)] = legacy.replies
    assert status == 200, found
    assert found == {
        "instructions": INSTRUCTIONS,
        "lists": ["store://opening", "store://shelf/{name}", "greet"],
        "contents": ["nine to five", "tea on one"],
        "prompt": ["Greet Ann."],
        "completed": ["Anna"],
    }
    assert graph.replies == legacy.replies
    assert store.done == ["read opening", "read one", "greet Ann", "complete An"]
    assert {one.op for one in run.tape or ()} == {"read"}
    assert [one.site for one in run.tape or ()] == [
        "mcp.store/resources/list",
        "mcp.store/resources/templates/list",
        "mcp.store/prompts/list",
        "mcp.store/resources/read",
        "mcp.store/resources/read",
        "mcp.store/prompts/get",
        "mcp.store/completion/complete",
    ]


@CLIENTS
@SERVERS
async def test_outside_of_exchanges_questions_and_reads_pass(
    tmp_path: Path, mode: Mode, modern: bool
) -> None:
    """The router is a plain proxy."""
    idle = working(nothing), working(nothing)
    async with store_house(tmp_path, *idle, modern=modern) as (place, store):
        url, user = f"{place.gateway}/mcp/store", User()
        async with store_client(url, user, mode, authorization=f"Bearer {KEY}") as client:
            assert await buy(client) == ("3 of tea bought", False)
            assert (await read_all(client))["contents"] == ["nine to five", "tea on one"]
    assert store.done[0] == "buy 3 tea"
    assert user.asked == ["How many tea?"]
