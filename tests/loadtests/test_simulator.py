"""The simulated provider answers OpenAI's own SDK, and fails exactly as it is told to."""

import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from loadtests.simulator import (
    Answer,
    Cut,
    ErrorEvent,
    Fault,
    Garbage,
    NeverAnswers,
    Reset,
    Silence,
    Simulator,
    SlowFirst,
)

pytestmark = pytest.mark.sockets

MODEL = "sim-chat"
ABC = ("a", "b", "c")
CALCULATE: Any = {
    "type": "function",
    "function": {
        "name": "calculate",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}


@pytest.fixture
async def sim() -> AsyncIterator[Simulator]:
    """A simulator on a free port."""
    async with Simulator() as simulator:
        yield simulator


@pytest.fixture
async def client(sim: Simulator) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's SDK, without retries."""
    async with AsyncOpenAI(base_url=sim.base_url, api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
async def plain(sim: Simulator) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client."""
    async with httpx.AsyncClient(base_url=sim.base_url) as http:
        yield http


def asking(*texts: str, **more: Any) -> dict[str, Any]:
    """Return the body of a streamed chat request; with two texts, the first is the system's."""
    roles = ("system", "user")[-len(texts) :]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    return {"model": MODEL, "messages": messages, "stream": True, **more}


async def whole(client: AsyncOpenAI, *texts: str, **more: Any) -> str:
    """Return the text of a whole answer."""
    answer = await client.chat.completions.create(**asking(*texts, **more) | {"stream": False})
    return answer.choices[0].message.content or ""


# Chat completions


async def test_a_streamed_answer_equals_the_whole_one(client: AsyncOpenAI) -> None:
    """Same text, same usage; the usage chunk has no choices and comes after the finish reason."""
    plain = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Tell me of tides."}]
    )
    stream = await client.chat.completions.create(
        **asking("Tell me of tides.", stream_options={"include_usage": True})
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert "“Tell me of tides.”" in text
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-1].choices, chunks[-1].usage) == ([], plain.usage)
    assert 45 <= len(chunks) <= 75


@pytest.mark.parametrize(
    ("question", "expressions", "results", "reply"),
    [
        ("What is 12 * 7?", ["12 * 7"], ["84"], "12 * 7 is 84."),
        ("12 * 7 and (3 + 4) / 2?", ["12 * 7", "(3 + 4) / 2"], ["84", "3.5"], None),
        ("[小明]: 12×7 等于几？", ["12*7"], ["84"], "12*7 等于 84。"),
        ("1/0?", ["1/0"], ["Error: tool_failed"], "calculate failed: Error: tool_failed."),
    ],
)
async def test_sums_are_calculated_in_one_round_and_then_told(
    client: AsyncOpenAI,
    question: str,
    expressions: list[str],
    results: list[str],
    reply: str | None,
) -> None:
    """Each sum is one call; the next answer puts every result into a sentence."""
    messages: list[Any] = [{"role": "user", "content": question}]
    async with client.chat.completions.stream(
        model=MODEL, messages=messages, tools=[CALCULATE]
    ) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    calls = choice.message.tool_calls or []
    assert choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments)["expression"] for call in calls] == expressions
    messages.append(choice.message.model_dump(exclude_none=True))
    for call, result in zip(calls, results, strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=[CALCULATE])
    expected = reply or " ".join(
        f"{sum_} is {result}." for sum_, result in zip(expressions, results, strict=True)
    )
    assert answer.choices[0].message.content == expected


CHECK = "回答“需要检索”或“不需要检索”。"
EXTRACT = '只输出 JSON：{"operations":[{"op":"add","text":"…","confidence":0.9}]}。'
MEMORIES = '只输出 JSON：{"memories":[{"text":"…","confidence":0.5}]}。'
OPS = '只输出一个 JSON 对象：{"worker":"…","action":"…","args":{}}，或者结束：{"final":"…"}。'


def step(worker: str, action: str, **args: str) -> dict[str, Any]:
    """Return an instruction."""
    return {"worker": worker, "action": action, "args": args}


def added(*facts: str) -> dict[str, Any]:
    """Return operations that add facts."""
    op = {"op": "add", "type": "other", "confidence": 0.9}
    return {"operations": [op | {"text": fact} for fact in facts]}


@pytest.mark.parametrize(
    ("system", "question", "answer"),
    [
        (CHECK, "还记得我的生日吗？", "需要检索"),
        (CHECK, "你好", "不需要检索"),
        (f"{CHECK}如：还记得、以前。\n消息：“去年我们去了哪里？”\n判断：", "", "需要检索"),
        (f"{CHECK}如：还记得、以前。\n消息：“你好”\n判断：", "", "不需要检索"),
        (EXTRACT, "user: 我喜欢茶。今天几点？\nassistant: 好。", added("我喜欢茶。")),
        (EXTRACT, "已知的记忆：\n- 我喜欢茶。\n新的对话：\nuser: 我喜欢茶。", added()),
        (
            MEMORIES,
            "user: I like tea.\nassistant: I see.",
            {"memories": [{"text": "I like tea.", "confidence": 0.9}]},
        ),
        (OPS, "check the disk", step("system", "disk")),
        (OPS, "重启 web", step("container", "restart", name="web")),
        (OPS, "删除临时文件 *.log", step("system", "delete_temporary", pattern="*.log")),
        (OPS, "hello", {"final": "There is nothing to do."}),
    ],
)
async def test_prompts_that_want_a_form_get_it(
    client: AsyncOpenAI, system: str, question: str, answer: Any
) -> None:
    """A label, or JSON, as the prompts of the flows ask for it."""
    texts = (system, question) if question else (system,)
    text = await whole(client, *texts, max_tokens=500)
    assert (text if isinstance(answer, str) else json.loads(text)) == answer


async def test_operations_finish_after_the_result(client: AsyncOpenAI) -> None:
    """A step's result is followed by the next step or the final answer."""
    messages: list[Any] = [
        {"role": "system", "content": OPS},
        {"role": "user", "content": "check the disk, then restart web"},
        {"role": "assistant", "content": json.dumps(step("system", "disk"))},
        {"role": "user", "content": '{"ok":true,"message":"40 % free"}'},
    ]
    replies = []
    for _ in range(2):
        done = await client.chat.completions.create(model=MODEL, messages=messages)
        replies.append(json.loads(done.choices[0].message.content or ""))
        messages += [
            {"role": "assistant", "content": json.dumps(replies[-1])},
            {"role": "user", "content": '{"ok":true,"message":"web is up"}'},
        ]
    assert replies == [step("container", "restart", name="web"), {"final": "web is up"}]


async def test_a_picture_is_read_as_a_fixed_text(client: AsyncOpenAI) -> None:
    """Whatever is in the image, the text is one an extraction finds a fact in."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "Read it."}, image]
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": parts}],  # type: ignore[misc,list-item]  # a literal
    )
    read = answer.choices[0].message.content or ""
    assert "生日" in read
    assert json.loads(await whole(client, EXTRACT, read))["operations"]


async def test_max_tokens_shortens_with_finish_length(client: AsyncOpenAI) -> None:
    """As providers do."""
    answer = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Tides?"}], max_completion_tokens=5
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


# Other APIs, reasoning, embeddings


async def test_another_api_answers_as_it_is_told(plain: httpx.AsyncClient, sim: Simulator) -> None:
    """The exact body for the request's JSON, of events or whole; other paths are not found."""
    sim.at("/v1/responses", lambda asked: json.dumps(asked) if asked else "data: 1\n\n")
    for asked, media in (({"input": "?"}, "application/json"), ({}, "text/event-stream")):
        answer = await plain.post("/responses", json=asked)
        assert answer.headers["content-type"].startswith(media)
        assert answer.text == (json.dumps(asked) if asked else "data: 1\n\n")
    assert (await plain.post("/messages", json={})).status_code == 404


async def test_reasoning_goes_into_the_field_that_is_named(
    client: AsyncOpenAI, sim: Simulator
) -> None:
    """Both names that providers use."""
    sim.script(
        [
            Answer(text="Yes.", reasoning="Think well.", reasoning_field="reasoning"),
            Answer(text="Yes.", reasoning="Think well."),
        ]
    )
    for field in ("reasoning", "reasoning_content"):
        stream = await client.chat.completions.create(**asking("?"))
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert "".join(getattr(delta, field, None) or "" for delta in deltas) == "Think well."


async def test_embeddings_of_texts_that_share_words_are_near(client: AsyncOpenAI) -> None:
    """Unit vectors of 64 places; the SDK asks for base64."""
    answer = await client.embeddings.create(
        model="sim-embed", input=["我喜欢喝绿茶", "你记得我喜欢喝什么茶吗", "The tide is high"]
    )
    tea, question, tide = (one.embedding for one in answer.data)

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert len(tea) == 64
    assert math.isclose(cosine(tea, tea), 1.0, abs_tol=1e-5)
    assert cosine(tea, question) > cosine(tea, tide) + 0.2


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chat/completions", b"{", 400),
        ("/chat/completions", b'{"model":"m"}', 400),
        ("/embeddings", b'{"model":"m"}', 400),
        ("/images", b"{}", 404),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    plain: httpx.AsyncClient, path: str, body: bytes, status: int
) -> None:
    """With the provider's form of an error."""
    answer = await plain.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, "invalid_request_error")


# Scripts, rules, the record


async def test_rules_answer_before_the_queue_and_the_queue_in_order(
    client: AsyncOpenAI, sim: Simulator
) -> None:
    """Then the built-in behaviour answers again."""
    sim.script([Answer(text="one"), lambda request: Answer(text=request.question.upper())])
    sim.on("tea", Answer(text="ruled"))
    sim.on(lambda request: "forbid" in request.system, Answer(text="by predicate"))
    assert await whole(client, "tea?") == "ruled"
    assert await whole(client, "forbid", "a") == "by predicate"
    assert [await whole(client, text) for text in "ab"] == ["one", "B"]
    assert "“c”" in await whole(client, "c")


async def test_requests_are_kept_without_credentials(client: AsyncOpenAI, sim: Simulator) -> None:
    """Method, path, headers and body of every request, in order."""
    await whole(client, "Hello")
    (received,) = sim.requests
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.body["messages"] == [{"role": "user", "content": "Hello"}]
    assert "user-agent" in received.headers
    assert "authorization" not in received.headers
    assert (received.ended, received.cancelled_at) == (True, None)


@pytest.mark.parametrize("status", [429, 503])
async def test_an_error_has_its_status_sentence_and_headers(
    client: AsyncOpenAI, sim: Simulator, status: int
) -> None:
    """The SDK reads them."""
    sim.script([Answer(status=status, text="Too busy.", headers=(("retry-after", "7"),))])
    with pytest.raises(openai.APIStatusError, match="Too busy") as caught:
        await whole(client, "?")
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (status, "7")


RAW = ': keep-alive\r\n\r\ndata: {"choices":[]}\n\ndata: [DONE]\n\ndata: cut'


async def test_a_raw_answer_goes_out_byte_for_byte(
    plain: httpx.AsyncClient, sim: Simulator
) -> None:
    """Comments, line ends, an unterminated event."""
    sim.script([Answer(raw=RAW)])
    answer = await plain.post("/chat/completions", json=asking("?"))
    assert answer.content == RAW.encode()
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("answer", "ends"),
    [
        (Answer(pieces=ABC), ["stop", "usage", "[DONE]"]),
        (Answer(pieces=ABC, usage="late"), ["stop", "usage", "[DONE]"]),
        (Answer(pieces=ABC, usage="none"), ["stop", "[DONE]"]),
        (Answer(pieces=ABC, done=False), ["stop", "usage"]),
        (Answer(pieces=ABC, finish=None, usage="none"), ["[DONE]"]),
        (Answer(pieces=ABC, finish="content_filter", usage="none", done=False), ["content_filter"]),
    ],
)
async def test_the_end_of_a_stream_is_as_scripted(
    plain: httpx.AsyncClient, sim: Simulator, answer: Answer, ends: list[str]
) -> None:
    """Finish reason, usage and `[DONE]` are there or not, each on its own."""
    sim.script([answer])
    body = asking("?", stream_options={"include_usage": True})
    events = (await plain.post("/chat/completions", json=body)).text.split("\n\n")[4:-1]

    def end(event: str) -> str:
        data = event.removeprefix("data: ")
        if data == "[DONE]":
            return data
        parsed = json.loads(data)
        return "usage" if "usage" in parsed else str(parsed["choices"][0]["finish_reason"])

    assert [end(event) for event in events] == ends


# Faults


async def texts_until_failure(client: AsyncOpenAI) -> tuple[str, BaseException | None]:
    """Return what a stream brings, and how it fails."""
    text = ""
    try:
        stream = await client.chat.completions.create(**asking("?"), timeout=0.2)
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    except Exception as error:  # noqa: BLE001 - the failure is the result
        return text, error
    return text, None


@pytest.mark.parametrize(
    ("fault", "text", "error"),
    [
        (Cut(2), "ab", "APIConnectionError"),
        (Cut(9), "abc", "APIConnectionError"),
        (ErrorEvent(1), "a", "APIError"),
        (Garbage(1), "a", "JSONDecodeError"),
        (Reset(), "", "APIConnectionError"),
        (SlowFirst(0.01), "abc", None),
        (SlowFirst(0.01, headers=False), "abc", None),
        pytest.param(Silence(2), "ab", "APITimeoutError", marks=pytest.mark.slow),
        pytest.param(NeverAnswers(), "", "APITimeoutError", marks=pytest.mark.slow),
    ],
)
async def test_a_fault_strikes_where_it_is_put(
    client: AsyncOpenAI, sim: Simulator, fault: Fault, text: str, error: str | None
) -> None:
    """The chunks before it arrive; then the SDK meets what it would meet with a real provider."""
    sim.script([Answer(pieces=ABC, fault=fault)])
    got, raised = await texts_until_failure(client)
    assert got == text
    assert (type(raised).__name__ if raised else None) == error
    await sim.until(lambda sim: sim.requests[0].ended or sim.requests[0].cancelled_at is not None)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Cut(), httpx.RemoteProtocolError),
        (Reset(), httpx.ReadError),
        (NeverAnswers(), httpx.ReadTimeout),
        (Silence(), httpx.ReadTimeout),
    ],
)
async def test_a_whole_answer_breaks_off_too(
    plain: httpx.AsyncClient, sim: Simulator, fault: Fault, error: type[Exception]
) -> None:
    """In the middle of its body, or before its headers."""
    sim.script([Answer(text="abc", fault=fault)])
    with pytest.raises(error):
        await plain.post("/chat/completions", json=asking("?") | {"stream": False}, timeout=0.05)


async def test_a_whole_answer_fails_as_a_body_can(plain: httpx.AsyncClient, sim: Simulator) -> None:
    """An error event becomes a 500, garbage a body that is no JSON."""
    sim.script([Answer(text="abc", fault=fault) for fault in (ErrorEvent(), Garbage())])
    asked = asking("?") | {"stream": False}
    failed, garbled = [await plain.post("/chat/completions", json=asked) for _ in range(2)]
    assert failed.status_code == 500
    with pytest.raises(json.JSONDecodeError):
        garbled.json()


# Life


@pytest.mark.parametrize("fault", [Silence(1), NeverAnswers(), None])
async def test_closing_ends_open_answers_and_leaves_nothing(fault: Fault | None) -> None:
    """Neither an answer that would never end nor one under way holds it up."""
    async with httpx.AsyncClient() as http:
        async with Simulator(chunk_ms=60_000 if fault is None else 0) as sim:
            sim.script([Answer(text="one two three", fault=fault)])
            url = f"{sim.base_url}/chat/completions"
            request = asyncio.create_task(http.post(url, json=asking("?"), timeout=None))
            await sim.until(lambda sim: bool(sim.requests))
        with pytest.raises(httpx.TransportError):
            await request
        assert sim.requests[0].cancelled_at is not None
        with pytest.raises(httpx.ConnectError):
            await http.get(sim.base_url + "/models")


@pytest.mark.virtual
async def test_pauses_pass_in_virtual_time() -> None:
    """A minute between two chunks costs a test nothing."""
    async with (
        Simulator(chunk_ms=60_000) as sim,
        httpx.AsyncClient(base_url=sim.base_url, timeout=600) as http,
    ):
        sim.script([Answer(pieces=("a", "b"), usage="none")])
        began = asyncio.get_running_loop().time()
        await http.post("/chat/completions", json=asking("?"))
        assert asyncio.get_running_loop().time() - began == pytest.approx(240)


@pytest.mark.slow
async def test_the_command_line_serves_until_a_signal() -> None:
    """One line says where; SIGTERM ends it with status 0."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.simulator", "--port", "0", "--chunk-ms", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("listening on http://127.0.0.1:")
    async with AsyncOpenAI(base_url=line.split()[-1], api_key="none") as sdk:
        assert "“Hello”" in await whole(sdk, "Hello")
    process.terminate()
    assert await process.wait() == 0
