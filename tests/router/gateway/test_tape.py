"""Stacks behind addresses on one model tape: what one asked is played to the other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.errors import CutoverError
from contract.flows.chat import CHAT
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.scripted_service import HELLO, WHOLE, Asked, Service, Stream
from tests.support.scripted_service import serving as service_at

pytestmark = pytest.mark.sockets

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CHILD = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"

Message = dict[str, object]


@dataclass
class Asker:
    """A service that asks the gateway a question and answers with a stream of its own.

    `tells` picks how it says which exchange it asks for; `messages` come before its question;
    `heard` are the gateway's answers.
    """

    tells: Callable[[Asked], tuple[str, dict[str, str]]]
    question: str = "Hello"
    messages: tuple[Message, ...] = ()
    times: int = 1
    fails: bool = False
    gateway: str = ""
    heard: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request of the router."""
        self.asked.append(asked)
        for _ in range(self.times):
            self.heard.append(await self.ask(asked))
        if self.fails:
            await stream.raw(b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n")
            return
        await stream.head()
        await stream.send(WHOLE)
        await stream.end()

    async def ask(self, asked: Asked) -> tuple[int, bytes]:
        """Ask the gateway."""
        path, headers = self.tells(asked)
        messages = [*self.messages, {"role": "user", "content": self.question}]
        body = {"model": "gpt-4.1", "messages": messages, "seed": 7, "stream": True}
        url = f"{self.gateway}{path}/v1/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers=headers) as response,
        ):
            return response.status, await response.read()


def call(name: str, arguments: str) -> dict[str, object]:
    """Make a tool call as it stands in a message."""
    function = {"name": "weather", "arguments": arguments}
    return {"id": name, "type": "function", "function": function}


def by_headers(asked: Asked) -> tuple[str, dict[str, str]]:
    """Pass on what the router said."""
    names = ("x-cutover-exchange", "x-cutover-role")
    return "", {name: asked.header(name)[0] for name in names}


def by_id(asked: Asked) -> tuple[str, dict[str, str]]:
    """Name the exchange in a header of one's own."""
    return "", {"x-exchange-id": asked.header("x-cutover-exchange")[0]}


def by_path(asked: Asked) -> tuple[str, dict[str, str]]:
    """Name the exchange in the base URL."""
    return f"/exchanges/{asked.header('x-cutover-exchange')[0]}", {}


def by_trace(_: Asked) -> tuple[str, dict[str, str]]:
    """Say nothing but the trace, in a span of its own."""
    return "", {"traceparent": CHILD}


def not_at_all(_: Asked) -> tuple[str, dict[str, str]]:
    """Say nothing."""
    return "", {}


@asynccontextmanager
async def house(
    folder: Path, legacy: Asker, graph: Asker, *, shadow: float = 0, more: str = ""
) -> AsyncIterator[Deployment]:
    """Deploy a router with a gateway before two services that use it."""
    async with service_at(legacy) as one, service_at(graph) as other:
        setup = Setup(more=f"{stacks(one, other)}\n{more}", shadow=shadow)
        async with deployed(folder, setup) as place:
            legacy.gateway = graph.gateway = place.gateway
            yield place


def stacks(legacy: Service, graph: Service) -> str:
    """Configure both, and the gateway."""
    return f"""
[gateway]
enabled = true
listen = "127.0.0.1:0"
[stacks.legacy]
url = "{legacy.url}/chat/sse"
[stacks.graph]
url = "{graph.url}/chat/sse"
shadow_safe = true
"""


async def ask(place: Deployment) -> None:
    """Be a client of the router, traced."""
    answer = await place.ask(HELLO, headers={"traceparent": TRACEPARENT})
    assert answer.body == WHOLE
    await place.settled()


def asked_otherwise(comparer: Comparer, pair: Pair) -> list[str]:
    """Name what the calls of a pair differ in."""
    return [found.path for found in comparer.compare(pair) if found.layer == "effects"]


@pytest.mark.parametrize("tells", [by_headers, by_id, by_path, by_trace])
async def test_a_shadow_does_not_ask_the_model_twice(
    tmp_path: Path, tells: Callable[[Asked], tuple[str, dict[str, str]]]
) -> None:
    """It gets what the serving stack got, to the byte; the record has one call, played exactly."""
    legacy, graph = Asker(tells, times=2), Asker(tells, times=2)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        assert place.model_calls == 2
        assert place.services.router.shadows.budget.tokens == 0
        serving, shadow = await place.lines()
    assert [status for status, _ in legacy.heard] == [200, 200]
    assert graph.heard == legacy.heard
    assert legacy.heard[0][1].endswith(b"data: [DONE]\n\n")
    assert [play.how for play in serving.plays] == ["live", "live"]
    assert [play.how for play in shadow.plays] == ["exact", "exact"]
    assert [use.model for use in shadow.models] == ["sim-chat", "sim-chat"]
    assert serving.tape is not None
    args = json.loads(bytes(serving.tape[0].args))
    assert args == {
        "model_id": "gpt-4.1",
        "messages": [{"role": "user", "content": "Hello"}],
        "more": {"seed": 7},
    }
    assert b"raw" not in b"".join(bytes(item) for item in serving.tape[0].items)


async def test_a_call_that_says_nothing_stands_alone(tmp_path: Path) -> None:
    """Both stacks are answered, each by the model, and nothing is on the tape."""
    legacy, graph = Asker(not_at_all), Asker(not_at_all)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        assert place.model_calls == 2
        serving, _ = await place.lines()
    assert serving.tape == ()


async def test_a_shadow_that_asks_something_else_gets_the_nearest(tmp_path: Path) -> None:
    """And the difference is on record; the model is not asked."""
    legacy, graph = Asker(by_headers), Asker(by_headers, question="Good day")
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        assert place.model_calls == 1
        serving, shadow = await place.lines()
    assert graph.heard == legacy.heard
    [play] = shadow.plays
    assert play.how == "nearest"
    assert b"Good day" in bytes(play.args or b"")
    pair = pair_of((serving, shadow))
    assert isinstance(pair, Pair)
    assert asked_otherwise(Comparer(CHAT), pair) == ["model.stream@gateway[0].messages[0].user"]


BY_HAND: tuple[Message, ...] = (
    {"role": "assistant", "content": None, "tool_calls": [call("call_1", '{"city": "Ulm"}')]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
)
BY_A_LIBRARY: tuple[Message, ...] = (
    {"role": "assistant", "content": "", "tool_calls": [call("x", '{"city":"Ulm"}')], "name": None},
    {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "sunny"}]},
)


async def test_what_libraries_write_otherwise_is_one_call(tmp_path: Path) -> None:
    """The model is asked once, the pair is equal, and what was folded is counted."""
    legacy, graph = (Asker(by_headers, messages=form) for form in (BY_HAND, BY_A_LIBRARY))
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        assert place.model_calls == 1
        pair = pair_of(tuple(await place.lines()))
    assert isinstance(pair, Pair)
    assert [play.how for play in pair.candidate.plays] == ["exact"]
    assert b'"name":null' in bytes(pair.candidate.plays[0].args or b"")
    comparer = Comparer(CHAT)
    assert asked_otherwise(comparer, pair) == []
    assert comparer.folded == {"absent", "arguments", "call_ids", "empty_content", "text_part"}
    assert asked_otherwise(Comparer(CHAT, normalise=False), pair)


async def test_normalising_can_be_switched_off(tmp_path: Path) -> None:
    """Then only equal calls are one call."""
    legacy, graph = (Asker(by_headers, messages=form) for form in (BY_HAND, BY_A_LIBRARY))
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("[gateway]", "[gateway]\nnormalise = false", 1))
        await ask(place)
        _, shadow = await place.lines()
    assert [play.how for play in shadow.plays] == ["nearest"]


async def test_a_shadow_that_asks_more_than_there_is(tmp_path: Path) -> None:
    """Is told so, after the answer it threw away once: no model is asked for a shadow."""
    legacy, graph = Asker(by_headers), Asker(by_headers, times=3)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        assert place.model_calls == 1
    *given, (status, body) = graph.heard
    assert given == legacy.heard * 2
    assert (status, json.loads(body)["error"]["code"]) == (422, "tape_miss")


async def test_who_stands_in_gets_what_was_answered_already(tmp_path: Path) -> None:
    """The stack that failed had asked: the model is not asked again."""
    legacy, graph = Asker(by_headers, fails=True), Asker(by_headers)
    async with house(tmp_path, legacy, graph) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("[flows.chat]", "[flows.chat]\nfallback_to_graph = true", 1))
        await ask(place)
        assert place.model_calls == 1
        # The exchange has ended: a later call stands alone, or is refused.
        assert (await legacy.ask(legacy.asked[0]))[0] == 200
        path, _ = by_path(legacy.asked[0])
        legacy.tells = lambda _: (path, {})
        assert (await legacy.ask(legacy.asked[0]))[0] == 404
    assert [asked.header("x-cutover-role") for asked in graph.asked] == [["fallback"]]
    assert graph.heard == legacy.heard


async def test_the_gateway_is_opened_with_its_key(tmp_path: Path) -> None:
    """Refused to start without the variable; with it, calls without the key are refused."""
    more = '[gateway]\nenabled = true\nkey_env = "GATEWAY_KEY"'
    with pytest.raises(CutoverError, match="GATEWAY_KEY"):
        async with deployed(tmp_path, Setup(more=more)):
            pass
    setup = Setup(more=more, environ={"GATEWAY_KEY": "secret"})
    async with deployed(tmp_path, setup) as place:
        url, headers = f"{place.gateway}/v1/models", {"authorization": "Bearer secret"}
        async with place.session.get(url) as response:
            assert response.status == 401
        async with place.session.get(url, headers=headers) as response:
            assert [one["id"] for one in (await response.json())["data"]] == ["gpt-4.1", "slow"]
    async with deployed(tmp_path) as place, place.session.get(f"{place.url}/v1/models") as response:
        assert response.status == 404, "off by default"


async def test_a_role_nobody_has(tmp_path: Path) -> None:
    """A call of a shadow that is not there belongs to no run."""

    def as_shadow(asked: Asked) -> tuple[str, dict[str, str]]:
        path, _ = by_path(asked)
        return path, {"x-cutover-role": "shadow"}

    legacy = Asker(as_shadow)
    async with house(tmp_path, legacy, Asker(as_shadow)) as place:
        await ask(place)
        assert place.model_calls == 0
    [(status, body)] = legacy.heard
    assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_run")
