"""The simulator on a socket, in this process or its own, and what it counts."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from io import BytesIO

import aiohttp
import msgspec
import pytest

from loadtests.processes import ServerDidNotStart
from loadtests.simulator import Profile, RequestLedger, Served, running, spawn
from loadtests.simulator.__main__ import main
from loadtests.simulator.app import MAX_BODY
from tests.support.patience import PATIENCE_S


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serve the default profile."""
    async with running() as simulator:
        yield simulator


@pytest.fixture
async def client(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    """Connect with a plain HTTP client."""
    async with aiohttp.ClientSession(served.url) as session:
        yield session


def asking(model: str, **fields: object) -> bytes:
    """Write a request's body."""
    messages = [{"role": "user", "content": "Hello there"}]
    body = {"model": model, "stream": True, "messages": messages}
    return msgspec.json.encode(body | fields)


async def drain(response: aiohttp.ClientResponse, received: list[bytes]) -> None:
    """Read until there is nothing more, keeping what came before an error."""
    async for part in response.content.iter_any():
        received.append(part)  # noqa: PERF401


async def counted(ledger: RequestLedger, key: str) -> None:
    """Wait until the one request is counted there."""
    async with asyncio.timeout(PATIENCE_S):
        await ledger.until(key, 1)


@pytest.mark.sockets
@pytest.mark.parametrize(
    "model",
    [
        "sim-chat?ttft_ms=60000",
        "sim-chat?rate=1&tokens=100",
        "sim-chat?ending=stall&after=3",
        "sim-chat?ending=silent&headers=1",
    ],
)
async def test_a_client_that_leaves_is_noticed(
    served: Served, client: aiohttp.ClientSession, model: str
) -> None:
    """Whatever the stream waits for, it stops, and the delay is on record."""
    async with client.post("/v1/chat/completions", data=asking(model)) as response:
        assert response.status == 200
        assert served.ledger.counts()["in_flight"] == 1
        response.close()
    await counted(served.ledger, "cancelled")
    counts = served.ledger.counts()
    assert counts["in_flight"] == 0
    assert len(msgspec.to_builtins(counts["noticed_us"])) == 1


@pytest.mark.sockets
async def test_a_client_that_gives_up_on_silence_is_noticed(served: Served) -> None:
    """No header, no byte; the client hangs up."""
    host, port = served.url.removeprefix("http://").split(":")
    body = asking("sim-chat?ending=silent")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await counted(served.ledger, "in_flight")
    writer.close()
    await writer.wait_closed()
    await counted(served.ledger, "cancelled")


@pytest.mark.sockets
@pytest.mark.parametrize("query", ["", "&rate=1000", "&split=1"])
async def test_what_was_sent_before_a_cut_arrives(
    client: aiohttp.ClientSession, query: str
) -> None:
    """The role and three deltas, then the end of the connection, without a terminal chunk."""
    body = asking(f"sim-chat?ending=cut&after=3{query}")
    received: list[bytes] = []
    async with client.post("/v1/chat/completions", data=body) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await drain(response, received)
    assert b"".join(received).count(b"\n\n") == 4


@pytest.mark.sockets
async def test_stopping_breaks_open_answers_off() -> None:
    """A stalled stream does not keep the server, nor leave a task behind."""
    async with running() as simulator, aiohttp.ClientSession(simulator.url) as client:
        body = asking("sim-chat?ending=stall&after=1")
        response = await client.post("/v1/chat/completions", data=body)
        await response.content.readany()
    response.close()
    assert simulator.ledger.counts()["in_flight"] == 0


@pytest.mark.sockets
@pytest.mark.parametrize("split", [0, 1])
async def test_chunks_carry_the_moment_they_were_sent(
    client: aiohttp.ClientSession, split: int
) -> None:
    """`sent_ns` lies between asking and reading, and never goes back."""
    began = time.monotonic_ns()
    body = asking(f"sim-chat?stamp=1&tokens=8&split={split}")
    async with client.post("/v1/chat/completions", data=body) as response:
        lines = [line for line in (await response.read()).split(b"\n\n") if line]
    ended = time.monotonic_ns()
    assert lines[-1] == b"data: [DONE]"
    stamps = [msgspec.json.decode(line[6:])["sent_ns"] for line in lines[:-1]]
    assert len(stamps) == 1 + 8 + 1
    assert [began, *stamps, ended] == sorted([began, *stamps, ended])


@pytest.mark.sockets
async def test_the_ground_truth_of_latency_is_on_record(
    served: Served, client: aiohttp.ClientSession
) -> None:
    """Stamps of a request, found by the id in its response header."""
    body = asking("gpt-4.1?ttft_ms=5&rate=1000&tokens=4")
    async with client.post("/v1/chat/completions", data=body) as response:
        await response.read()
        number = int(response.headers["x-request-id"].removeprefix("req_"))
    await counted(served.ledger, "completed")
    async with client.get("/sim/requests", params={"since": number}) as response:
        (record,) = (await response.json())["records"]
    assert record["first_ns"] >= record["started_ns"] + 5_000_000
    assert record["ended_ns"] >= record["started_ns"] + 8_000_000
    assert (record["model"], record["chunks"], record["end"]) == ("gpt-4.1", 7, "completed")


@pytest.mark.sockets
async def test_counts_can_be_read_and_reset(client: aiohttp.ClientSession) -> None:
    """Over HTTP, so that another process can."""
    for _ in range(3):
        async with client.post("/v1/chat/completions", data=asking("gpt-4.1")) as response:
            await response.read()
    async with client.get("/sim/counts") as response:
        counts = await response.json()
    assert (counts["total"], counts["by_model"]) == (3, {"gpt-4.1": 3})
    assert list(counts["by_digest"].values()) == [3]
    async with client.post("/sim/reset") as response:
        assert response.status == 200
    async with client.get("/sim/counts") as response:
        assert (await response.json())["total"] == 0


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/nothing", None, 404),
        ("GET", "/v1/chat/completions", None, 405),
        ("POST", "/v1/models", None, 405),
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"[]", 422),
        ("POST", "/v1/embeddings", b"{", 400),
        ("GET", "/sim/requests?since=yesterday", None, 400),
    ],
)
async def test_bad_requests_are_refused(
    client: aiohttp.ClientSession, method: str, path: str, body: bytes | None, status: int
) -> None:
    """In OpenAI's error shape."""
    async with client.request(method, path, data=body) as response:
        assert response.status == status
        assert set((await response.json())["error"]) == {"message", "type", "param", "code"}


@pytest.mark.sockets
async def test_bodies_have_a_limit(client: aiohttp.ClientSession) -> None:
    """413, without reading on."""
    body = BytesIO(b"x" * (MAX_BODY + 1))
    async with client.post("/v1/chat/completions", data=body) as response:
        assert response.status == 413


@pytest.mark.sockets
async def test_long_bodies_are_answered_without_being_remembered(
    client: aiohttp.ClientSession,
) -> None:
    """A picture is planned each time and still described equally."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    messages = [{"role": "user", "content": [picture]}]
    texts = []
    for _ in range(2):
        body = asking("gpt-4.1", stream=False, messages=messages)
        async with client.post("/v1/chat/completions", data=body) as response:
            texts.append(await response.read())
    assert texts[0] == texts[1]


@pytest.mark.sockets
async def test_a_connection_serves_many_requests(client: aiohttp.ClientSession) -> None:
    """Kept alive through streams, bodies and timed answers."""
    for model in ("sim-chat", "sim-chat?rate=10000&tokens=5", "sim-chat?ending=no_done"):
        for stream in (True, False):
            body = asking(model, stream=stream)
            async with client.post("/v1/chat/completions", data=body) as response:
                assert await response.read()
                assert response.headers.get("connection") != "close"


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_spawned_simulator_answers_and_ends() -> None:
    """It says where it listens, and has the profile it was given."""
    with spawn(Profile(tokens=3)) as url:
        body = b'{"model":"gpt-4.1","messages":[{"role":"user","content":"Hello"}]}'
        async with (
            aiohttp.ClientSession(url) as client,
            client.post("/v1/chat/completions", data=body) as response,
        ):
            answered = await response.json()
    assert answered["usage"]["completion_tokens"] == 3
    async with aiohttp.ClientSession(url) as client:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get("/v1/models")


@pytest.mark.sockets
@pytest.mark.slow
def test_a_simulator_that_does_not_start_says_so() -> None:
    """An option that means nothing ends it before it listens."""
    with pytest.raises(ServerDidNotStart, match="did not start"), spawn(None, "--rate=fast"):
        pass


@pytest.mark.sockets
@pytest.mark.slow
def test_the_command_explains_itself() -> None:
    """Every key of a profile is an option."""
    command = [sys.executable, "-m", "loadtests.simulator", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--ttft-ms" in ran.stdout
    assert "--retry-after" in ran.stdout


@pytest.mark.sockets
@pytest.mark.slow
def test_bad_options_are_refused() -> None:
    """With the key and the value."""
    with pytest.raises(SystemExit, match="rate"):
        main(["--rate", "fast"])


def test_requests_are_counted_by_how_they_end() -> None:
    """Open ones are in flight."""
    ledger = RequestLedger()
    records = [ledger.open("d", "m", stream=True) for _ in range(3)]
    records[0].sent(5)
    ledger.close(records[0], "completed")
    ledger.close(records[1], "cancelled", lost_ns=records[1].started_ns)
    counts = ledger.counts()
    assert (counts["total"], counts["in_flight"], counts["chunks"]) == (3, 1, 5)
    assert (counts["completed"], counts["cancelled"]) == (1, 1)
    assert counts["by_digest"] == {"d": 3}
    assert ledger.attempts("d") == 3
    assert records[0].started_ns <= records[0].first_ns <= records[0].ended_ns
    assert records[1].noticed_us is not None


def test_requests_from_before_a_reset_are_not_counted_after_it() -> None:
    """Their end would otherwise make the number in flight negative."""
    ledger = RequestLedger()
    before = ledger.open("d", "m", stream=True)
    ledger.reset()
    ledger.close(before, "completed")
    counts = ledger.counts()
    assert (counts["total"], counts["in_flight"], counts["completed"]) == (0, 0, 0)


def test_records_come_in_pages() -> None:
    """At most a thousand at a time, from a number on."""
    ledger = RequestLedger()
    for _ in range(1_500):
        ledger.open("d", "m", stream=False)
    first = msgspec.to_builtins(ledger.page(0))
    second = msgspec.to_builtins(ledger.page(first["next"]))
    assert (len(first["records"]), first["next"]) == (1_000, 1_000)
    assert (len(second["records"]), second["next"]) == (500, 1_500)
    assert ledger.page(1_500) == {"records": [], "next": 1_500}
