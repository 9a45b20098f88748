"""Clients of providers, unmodified, with the gateway as their base URL."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from anthropic import AsyncAnthropic
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

from tests.support.gateway import gateway_stage

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

MESSAGES: Any = [{"role": "user", "content": "What is 2 + 3? Use the tool."}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]


def openai(base: str) -> AsyncOpenAI:
    """Return a client as a service makes it, its base URL apart."""
    return AsyncOpenAI(base_url=f"{base}/v1", api_key="theirs", max_retries=1)


async def chat_streamed(base: str) -> Any:
    """Return the pieces of a chat."""
    async with openai(base) as client:
        stream = await client.chat.completions.create(
            model="sim-chat", messages=MESSAGES, stream=True
        )
        return [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]


async def chat_whole(base: str) -> Any:
    """Return a chat's text."""
    async with openai(base) as client:
        answer = await client.chat.completions.create(model="sim-chat", messages=MESSAGES)
        return answer.choices[0].message.content


async def chat_with_tools(base: str) -> Any:
    """Return the calls of tools that a chat asks for."""
    async with openai(base) as client:
        answer = await client.chat.completions.create(
            model="sim-chat", messages=MESSAGES, tools=TOOLS
        )
        return answer.choices[0].message.model_dump()


async def responses(base: str) -> Any:
    """Return the events of a response."""
    async with openai(base) as client:
        stream = await client.responses.create(model="sim-chat", input="Hello", stream=True)
        return [event.type async for event in stream]


async def embeddings(base: str) -> Any:
    """Return a vector."""
    async with openai(base) as client:
        answer = await client.embeddings.create(model="sim-embed", input="Hello")
        return answer.data[0].embedding


async def models(base: str) -> Any:
    """Return the models' names, from a GET."""
    async with openai(base) as client:
        return [one.id async for one in client.models.list()]


async def anthropic(base: str) -> Any:
    """Return the text of a streamed message."""
    url = f"{base}/anthropic"
    async with AsyncAnthropic(base_url=url, api_key="theirs", max_retries=1) as client:
        stream = await client.messages.create(
            model="claude-sim", max_tokens=64, messages=MESSAGES, stream=True
        )
        return [event.type async for event in stream]


async def langchain(base: str) -> Any:
    """Return the pieces of a chat."""
    model = ChatOpenAI(
        model="sim-chat", base_url=f"{base}/openai", api_key="theirs", stream_usage=True
    )
    return [piece.content async for piece in model.astream("Hello")]


CLIENTS: dict[Callable[[str], Awaitable[Any]], str] = {
    chat_streamed: "model.chat",
    chat_whole: "model.chat",
    chat_with_tools: "model.chat",
    responses: "model.responses",
    embeddings: "model.embeddings",
    models: "http GET /v1/models",
    anthropic: "model.messages",
    langchain: "model.chat",
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
async def test_a_call_is_recorded_and_played(client: Callable[[str], Awaitable[Any]]) -> None:
    """A run that plays gets what the live one got, and the provider is asked once."""
    async with gateway_stage() as stage:
        direct = await client(f"{stage.url}")
        assert stage.names == []
        _, live = stage.run()
        recorded = await client(live)
        assert stage.names == [CLIENTS[client]]
        asked = len(stage.sim.requests)
        stage.exchange.finish_recording()
        run, shadow = stage.run("play")
        assert await client(shadow) == recorded == direct
        assert [play.how for play in run.plays] == ["tape"]
        assert len(stage.sim.requests) == asked == 2
        assert stage.gateway.runs.uncorrelated == {"no_run": 1}


@pytest.mark.parametrize("api", ["openai", "anthropic", "problem"])
async def test_a_miss_is_refused_in_the_form_of_the_api_and_not_tried_again(api: str) -> None:
    """A run that plays an empty tape: one request arrives, and none is bought."""
    async with gateway_stage() as stage:
        stage.exchange.finish_recording()
        run, base = stage.run("play")
        status = 0
        match api:
            case "openai":
                with pytest.raises(Exception, match="plays a tape") as caught:
                    await chat_streamed(base)
                status, code = caught.value.status_code, caught.value.code  # type: ignore[attr-defined]
            case "anthropic":
                with pytest.raises(Exception, match="plays a tape") as caught:
                    await anthropic(base)
                status, code = caught.value.status_code, "tape_miss"  # type: ignore[attr-defined]
            case _:
                async with httpx.AsyncClient() as client:
                    answer = await client.get(f"{base}/openai/files")
                status, code = answer.status_code, answer.json()["code"]
        assert (status, code) == (410, "tape_miss")
        assert run.ended is not None
        assert stage.sim.requests == []
