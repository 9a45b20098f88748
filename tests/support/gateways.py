"""The gateway on a real uvicorn, and callers that use OpenAI's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from openai import APIError, APIStatusError, AsyncOpenAI, DefaultAioHttpClient
from openai.types.chat import ChatCompletionChunk

from contract.errors import Fault
from contract.model import Usage
from cutover.server.serve import server
from effects.model import ModelEntry, ModelRegistry, RescuePolicy, RescuingModel
from effects.model.errors import Facts
from router.gateway import Entrance, Gateway, add_gateway
from router.http.app import create_app
from tests.support.deployment import listening
from tests.support.misbehaving_providers import NO_WAIT, Heard, rescuing
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE

MOST_BYTES = 65_536


@dataclass
class GatewayCaller:
    """Asks through the gateway, with the client stacks have."""

    model: RescuingModel
    waits: list[float]
    client: AsyncOpenAI
    url: str

    async def ask(self) -> Heard:
        """Ask once, read to the end."""
        chunks: list[ChatCompletionChunk] = []
        fault = None
        try:
            stream = await self.client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "Hello"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 (kept when the stream fails)
        except APIError as error:
            fault = fault_of(error)
        return heard(chunks, fault)


@asynccontextmanager
async def through_the_gateway(
    entries: Sequence[ModelEntry], policy: RescuePolicy = NO_WAIT
) -> AsyncIterator[GatewayCaller]:
    """Call through the gateway."""
    async with (
        rescuing(entries, policy) as (registry, model, waits),
        opened(model, registry) as url,
        client_of(url) as client,
    ):
        yield GatewayCaller(model, waits, client, url)


@asynccontextmanager
async def opened(
    model: RescuingModel, registry: ModelRegistry, key: str = "", **limits: float
) -> AsyncIterator[str]:
    """Serve the gateway beside a router; gives its address."""
    async with House(CASE, Rules(limits=limits)) as house:
        gateway = Gateway(Entrance(house.router, key.encode(), MOST_BYTES), model, registry)
        app = create_app(house.router, dict)
        add_gateway(app, gateway)
        async with listening(server(app, house.router, 1)) as url:
            yield url


@asynccontextmanager
async def client_of(url: str, key: str = "none") -> AsyncIterator[AsyncOpenAI]:
    """Open OpenAI's client, with the retries it comes with."""
    async with AsyncOpenAI(
        api_key=key,
        base_url=f"{url}/v1",
        http_client=DefaultAioHttpClient(trust_env=False),
    ) as client:
        yield client


def heard(chunks: Sequence[ChatCompletionChunk], fault: Fault | None) -> Heard:
    """Put chunks together as the port's caller does."""
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    return Heard(
        text="".join(delta.content or "" for delta in deltas),
        arguments="".join(call.function.arguments or "" for call in calls if call.function),
        model=chunks[-1].model if chunks else "",
        finish="".join(choice.finish_reason or "" for chunk in chunks for choice in chunk.choices),
        usage=Usage(usages[-1].prompt_tokens, usages[-1].completion_tokens, usages[-1].total_tokens)
        if usages
        else None,
        fault=fault,
    )


def fault_of(error: APIError) -> Fault:
    """Read a fault from what the client raises: its code, and the facts of its sentence."""
    _, _, told = error.message.partition("(")
    pairs = [fact.split(" ", 1) for fact in told.rstrip(")'}").split(", ") if " " in fact]
    facts: Facts = {name: _value(value) for name, value in pairs}
    if isinstance(error, APIStatusError):
        assert error.response.headers["x-should-retry"] == "false"
        if (seconds := error.response.headers.get("retry-after")) is not None:
            facts["retry_after"] = float(seconds)
    return Fault(error.code, data=facts)  # type: ignore[arg-type] # one of ours


def _value(text: str) -> str | int | float | bool:
    if text in {"True", "False"}:
        return text == "True"
    return int(text) if text.isdecimal() else text
