"""What the openai SDK and langchain-openai really send for one conversation, in normal form.

Each case is written as one would with either library; the bodies are taken from the wire.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel, Field

from cutover.normal_form import NormalRequest, read

BASE = "http://model.test/v1"
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": '{"city":"Oslo","days":2}'},
        }
    ],
}
CHUNK = ANSWER | {
    "object": "chat.completion.chunk",
    "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],
}


VECTORS: Any = OpenAIEmbeddings  # its fields' aliases are unknown to mypy


class Wire:
    """A provider that keeps what it is asked, and answers streamed or whole."""

    def __init__(self) -> None:
        self.requests: list[NormalRequest] = []
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path, kind = request.url.raw_path.decode(), request.headers["content-type"]
        self.requests.append(read(request.method, path, kind, request.content))
        if path.endswith("/embeddings"):
            vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
            return httpx2.Response(200, json={"object": "list", "model": "m", "data": [vector]})
        if json.loads(request.content).get("stream"):
            events = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n"
            return httpx2.Response(
                200, content=events, headers={"content-type": "text/event-stream"}
            )
        return httpx2.Response(200, json=ANSWER)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """A provider for one test."""
    wire = Wire()
    yield wire
    await wire.client.aclose()


def sdk(wire: Wire) -> Any:
    """Return the SDK's client of the provider; requests are plain dicts, as in most services."""
    return AsyncOpenAI(base_url=BASE, api_key="k", http_client=wire.client)


def langchain(wire: Wire, model: str = "gpt-4.1", **more: Any) -> ChatOpenAI:
    """Return LangChain's model of the provider."""
    return ChatOpenAI(
        model=model, base_url=BASE, api_key="k", http_async_client=wire.client, **more
    )


# --- One weather service, twice


class Place(BaseModel):
    """Where."""

    city: str = Field(description="Its English name.")
    country: str | None = None


@tool
async def forecast(place: Place, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Forecast the weather."""
    return f"{place} {days} {unit}"


FORECAST: dict[str, Any] = json.loads(Path(__file__).with_name("forecast.json").read_bytes())
INPUT: Any = forecast.get_input_schema()
# As pydantic writes the same, with a reference.
GENERATED: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "Forecast the weather.",
        "strict": False,
        "parameters": INPUT.model_json_schema(),
    },
}


class Trip(BaseModel):
    """A trip."""

    city: str
    days: int
    via: Place | None = None


PIXEL = "data:image/png;base64,iVBORw0KGgo="
SYSTEM = "You are brief.\nToday is 2026-11-28, 10:30:00."
CALLS: list[dict[str, Any]] = [
    {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "forecast", "arguments": arguments},
    }
    for number, arguments in enumerate(('{"place": {"city": "Łódź"}, "days": 2}', "{}"))
]
LC_CALLS = [
    {"name": "forecast", "args": {"place": {"city": "Łódź"}, "days": 2}, "id": "run-1"},
    {"name": "forecast", "args": {}, "id": "run-2"},
]
RESULTS = [
    {"role": "tool", "tool_call_id": "call_0", "content": "rain", "name": "forecast"},
    {"role": "tool", "tool_call_id": "call_1", "content": "Error: bad_arguments"},
]
LC_RESULTS = [
    ToolMessage("rain", tool_call_id="run-1", name="forecast"),
    ToolMessage("Error: bad_arguments", tool_call_id="run-2", name="forecast", status="error"),
]
DUMPED = ChatCompletionMessage.model_validate(
    {"role": "assistant", "content": None, "tool_calls": CALLS, "annotations": []}
)
HI = HumanMessage("hi")

CALLING: dict[str, Any] = {
    "calls with content null": {"role": "assistant", "content": None, "tool_calls": CALLS},
    "calls with empty content": {"role": "assistant", "content": "", "tool_calls": CALLS},
    "the SDK's own message passed back": DUMPED,
    "the same dumped with its nulls": DUMPED.model_dump(),
}
CASES: dict[str, tuple[list[Any], list[BaseMessage]]] = {
    "system, history and user": (
        [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi!"},
            {"role": "user", "content": "[Ada]: 你好 \U0001f600"},
        ],
        [
            SystemMessage(SYSTEM),
            HumanMessage("hello"),
            AIMessage("hi!"),
            HumanMessage("[Ada]: 你好 \U0001f600"),
        ],
    ),
    **{
        name: (
            [{"role": "user", "content": "hi"}, message, *RESULTS],
            [HI, AIMessage("", tool_calls=LC_CALLS), *LC_RESULTS],
        )
        for name, message in CALLING.items()
    },
    "a call with text": (
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "I look.", "tool_calls": CALLS[:1]},
            RESULTS[0],
        ],
        [HI, AIMessage("I look.", tool_calls=LC_CALLS[:1]), LC_RESULTS[0]],
    ),
    "a picture": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": PIXEL, "detail": "auto"}},
                ],
            }
        ],
        [
            HumanMessage(
                content_blocks=[
                    {"type": "text", "text": "What is it?"},
                    {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
                ]
            )
        ],
    ),
    "text as a list": (
        [{"role": "user", "content": "hi"}],
        [HumanMessage(content_blocks=[{"type": "text", "text": "hi"}])],
    ),
    "reasoning passed back": (
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes", "reasoning_content": "Hm."},
            {"role": "user", "content": "why?"},
        ],
        [
            HI,
            AIMessage("yes", additional_kwargs={"reasoning_content": "Hm."}),
            HumanMessage("why?"),
        ],
    ),
}


@pytest.mark.parametrize(("messages", "lc_messages"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_both_libraries_ask_the_same_for_one_conversation(
    wire: Wire, messages: list[Any], lc_messages: list[BaseMessage], stream: bool
) -> None:
    """With settings and a tool, which each library writes its own way."""
    more: dict[str, Any] = {"stream": True} if stream else {}
    answer = await sdk(wire).chat.completions.create(
        model="gpt-4.1",
        messages=messages,
        tools=[FORECAST],
        tool_choice="auto",
        temperature=0.7,
        max_tokens=100,
        stop="END",
        **more,
    )
    if stream:
        async for _ in answer:
            pass
    model = langchain(
        wire, temperature=0.7, max_tokens=100, stop=["END"], streaming=stream, stream_usage=stream
    ).bind_tools([forecast])
    await model.ainvoke(lc_messages)
    theirs, ours = wire.requests
    assert theirs.canonical.decode() == ours.canonical.decode()
    assert theirs.key == ours.key
    assert theirs.name == "model.chat"


async def test_a_generated_schema_with_references_is_the_one_written_by_hand(wire: Wire) -> None:
    """LangChain resolves references, pydantic writes them."""
    for definition in (FORECAST, GENERATED):
        await sdk(wire).chat.completions.create(
            model="gpt-4.1", messages=[{"role": "user", "content": "hi"}], tools=[definition]
        )
    await langchain(wire).bind_tools([forecast], tool_choice="auto").ainvoke([HI])
    assert len({one.canonical for one in wire.requests}) == 1


async def test_reasoning_models_get_their_system_message_as_developer(wire: Wire) -> None:
    """ChatOpenAI renames the role for o-models."""
    await sdk(wire).chat.completions.create(
        model="o4-mini",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    )
    await langchain(wire, "o4-mini").ainvoke([SystemMessage("Be brief."), HI])
    theirs, ours = wire.requests
    assert theirs.canonical == ours.canonical


async def by_model(wire: Wire) -> None:
    """Ask by a pydantic model, as each library translates it."""
    await sdk(wire).chat.completions.parse(
        model="gpt-4.1", messages=[{"role": "user", "content": "hi"}], response_format=Trip
    )
    await langchain(wire).with_structured_output(Trip).ainvoke([HI])


async def by_schema(wire: Wire) -> None:
    """Ask by a schema written as JSON."""
    schema: Any = {"name": "Trip", "description": "A trip.", "schema": Trip.model_json_schema()}
    await sdk(wire).chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "user", "content": "hi"}],
        response_format={"type": "json_schema", "json_schema": schema},
    )
    await langchain(wire).with_structured_output(Trip.model_json_schema()).ainvoke([HI])


async def by_mode(wire: Wire) -> None:
    """Ask for any JSON."""
    await sdk(wire).chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "user", "content": "hi"}],
        response_format={"type": "json_object"},
    )
    await langchain(wire).with_structured_output(None, method="json_mode").ainvoke([HI])


@pytest.mark.parametrize("ask", [by_model, by_schema, by_mode])
async def test_both_libraries_ask_for_the_same_structured_output(
    wire: Wire, ask: Callable[[Wire], Awaitable[None]]
) -> None:
    """A schema in the format of the answer."""
    await ask(wire)
    theirs, ours = wire.requests
    assert theirs.canonical.decode() == ours.canonical.decode()


async def test_embeddings_are_a_model_of_their_own(wire: Wire) -> None:
    """Both libraries ask for the same vectors."""
    await sdk(wire).embeddings.create(model="e", input=["hi"], encoding_format="float")
    embeddings = VECTORS(
        model="e",
        base_url=BASE,
        api_key="k",
        http_async_client=wire.client,
        check_embedding_ctx_length=False,
        model_kwargs={"encoding_format": "float"},
    )
    await embeddings.aembed_documents(["hi"])
    theirs, ours = wire.requests
    assert theirs == ours
    assert ours.name == "model.embeddings"
