"""The OpenAI client against the simulator, on a real socket."""

from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionToolUnionParam

from loadtests.simulator import Profile, Served, running
from tests.loadtests.simulator.asking import ALL
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

TOOLS: list[ChatCompletionToolUnionParam] = [
    {"type": "function", "function": {"name": name, "parameters": {}}} for name in ALL
]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serve the default profile."""
    async with running(api_key="k") as simulator:
        yield simulator


@pytest.fixture
async def client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    """Connect without retries, so that every fault is seen."""
    async with openai.AsyncOpenAI(
        base_url=served.base_url, api_key="k", max_retries=0, timeout=PATIENCE_S
    ) as connected:
        yield connected


async def chunks(
    client: openai.AsyncOpenAI, question: str, model: str = "gpt-4.1"
) -> list[ChatCompletionChunk]:
    """Stream an answer to its end."""
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    )
    return [chunk async for chunk in stream]


def joined(read: list[ChatCompletionChunk]) -> str:
    """Join the text."""
    return "".join(choice.delta.content or "" for chunk in read for choice in chunk.choices)


async def test_a_stream_and_a_body_agree(client: openai.AsyncOpenAI) -> None:
    """Text and usage are the same both ways."""
    read = await chunks(client, "How do I grow tomatoes?")
    whole = await client.chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "user", "content": "How do I grow tomatoes?"}],
        tools=TOOLS,
    )
    assert whole.choices[0].message.content == joined(read)
    assert whole.usage == read[-1].usage
    assert whole.model == "gpt-4.1"


async def test_tool_calls_are_understood(client: openai.AsyncOpenAI) -> None:
    """The client's own types hold them, streamed and not."""
    read = await chunks(client, "现在几点？3 + 4 等于多少？")
    names = [
        call.function.name
        for chunk in read
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
        if call.function is not None and call.function.name
    ]
    assert names == ["current_time", "calculate"]


async def test_reasoning_arrives_as_an_extra(client: openai.AsyncOpenAI) -> None:
    """The client keeps fields it does not know."""
    read = await chunks(client, "Hello", "deepseek-reasoner?reasoning=5")
    assert "reasoning_content" in (read[1].choices[0].delta.model_extra or {})


async def test_a_cut_stream_is_an_error(client: openai.AsyncOpenAI) -> None:
    """A connection closed mid-answer is never taken for the end."""
    with pytest.raises(openai.APIConnectionError):
        await chunks(client, "Hello", "sim-chat?ending=cut&after=3")


async def test_an_error_event_is_an_error(client: openai.AsyncOpenAI) -> None:
    """Status 200 and then an error object."""
    with pytest.raises(openai.APIError, match="error while processing"):
        await chunks(client, "Hello", "sim-chat?ending=error_event&after=3")


async def test_a_stream_without_done_is_whole(client: openai.AsyncOpenAI) -> None:
    """The client finishes at the end of the body."""
    read = await chunks(client, "Hello", "sim-chat?ending=no_done")
    assert joined(read) == joined(await chunks(client, "Hello", "sim-chat"))


async def test_a_reset_is_a_connection_error(client: openai.AsyncOpenAI) -> None:
    """Before any header."""
    with pytest.raises(openai.APIConnectionError):
        await chunks(client, "Hello", "sim-chat?ending=reset")


async def test_status_errors_have_their_types(client: openai.AsyncOpenAI) -> None:
    """429, 500, 404 for an unknown model, 400 for an invalid override."""
    with pytest.raises(openai.RateLimitError) as limited:
        await chunks(client, "Hello", "sim-chat?ending=http_error&status=429&retry_after=2")
    assert limited.value.response.headers["retry-after"] == "2"
    with pytest.raises(openai.InternalServerError):
        await chunks(client, "Hello", "sim-chat?ending=http_error")
    with pytest.raises(openai.NotFoundError):
        await chunks(client, "Hello", "gpt-unheard-of")
    with pytest.raises(openai.BadRequestError):
        await chunks(client, "Hello", "sim-chat?rat=5")


async def test_a_fault_may_strike_once(client: openai.AsyncOpenAI) -> None:
    """With `times=1` the second attempt of the same conversation is answered."""
    model = "sim-chat?ending=http_error&status=503&times=1"
    with pytest.raises(openai.InternalServerError):
        await chunks(client, "Hello", model)
    assert joined(await chunks(client, "Hello", model))
    with pytest.raises(openai.InternalServerError):
        await chunks(client, "Hello again", model)


async def test_a_wrong_key_is_refused(served: Served) -> None:
    """401, in OpenAI's shape."""
    async with openai.AsyncOpenAI(base_url=served.base_url, api_key="x") as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    """Those with names of their own."""
    listed = [model.id async for model in client.models.list()]
    assert {"sim-chat", "gpt-4.1", "text-embedding-3-small"} <= set(listed)


async def test_embeddings_are_understood(client: openai.AsyncOpenAI) -> None:
    """The client asks for base64 by itself; floats can be asked for."""
    coded = await client.embeddings.create(model="sim-embed", input=["hi", "there"])
    floats = await client.embeddings.create(
        model="sim-embed", input="hi", encoding_format="float", dimensions=384
    )
    assert coded.data[0].embedding == pytest.approx(floats.data[0].embedding, abs=1e-7)
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model="unheard-of", input="hi")


async def test_two_servers_say_the_same() -> None:
    """Down to the bytes, ids and times included."""
    bodies = []
    for _ in range(2):
        async with (
            running(Profile(tokens=5)) as simulator,
            openai.AsyncOpenAI(base_url=simulator.base_url, api_key="k") as connected,
        ):
            bodies.append([chunk.to_json() for chunk in await chunks(connected, "Hello")])
    assert bodies[0] == bodies[1]
