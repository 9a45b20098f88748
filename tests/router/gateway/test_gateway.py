"""The gateway on a socket: what it passes on, what it refuses, and who leaves."""

import asyncio
import gzip
import ssl
from typing import Any

import httpx
import pytest
import zstandard

from cutover.tape import Entry
from cutover.tape.remote import TARGET_HEADER
from loadtests.simulator import Answer, Cut, NeverAnswers, Reset, Silence
from router.gateway import Provider
from router.gateway.runs import TRIAL, headers
from tests.support.gateway import GatewayStage, gateway_stage
from tests.support.origin import Origin, Reply

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

CHAT = {"model": "sim-chat", "messages": [{"role": "user", "content": "Hello"}]}
STREAM = CHAT | {"stream": True}
_TLS = ssl.create_default_context()
"""Made once: it takes 30 ms."""


async def post(
    base: str, body: Any = None, path: str = "/v1/chat/completions", **headers: str
) -> httpx.Response:
    """Post a body of JSON; `_` in a header's name stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(trust_env=False, verify=_TLS) as client:
        return await client.post(
            f"{base}{path}",
            json=body or CHAT,
            headers=[(name.encode(), value.encode()) for name, value in named.items()],
        )


def entry(stage: GatewayStage) -> Entry:
    """Return the only call on the tape."""
    (found,) = stage.exchange.entries
    return found


async def test_what_belongs_to_no_run_is_passed_on_and_counted() -> None:
    """No run is named, the trace is the service's own, or the run was live to its end."""
    async with gateway_stage() as stage:
        run, base = stage.run()
        await post(stage.url)
        await post(stage.url, traceparent=f"00-{'4f' * 16}-{'4f' * 8}-01")
        await stage.exchange.aclose()
        await post(base)
        assert run.exchange.off_tape == {"model.chat": 1}
        counted = {"no_run": 1, "unknown_trace": 1, "run_over": 1}
        assert stage.gateway.runs.uncorrelated == counted
        assert len(stage.sim.requests) == 3
        assert stage.names == []


@pytest.mark.parametrize("name", ["x-cutover-run", "traceparent"])
async def test_what_a_trial_of_a_service_asks_is_made_and_not_counted(name: str) -> None:
    """Else a doctor would find its own calls at fault, and say that a set-up does not work."""
    async with gateway_stage() as stage:
        answer = await post(stage.url, **{name: headers(TRIAL, "")[name]})
        assert answer.status_code == 200
        assert (len(stage.sim.requests), stage.gateway.runs.uncorrelated) == (1, {})


@pytest.mark.parametrize("how", ["unknown", "path", "trace"])
async def test_a_call_of_an_unknown_run_or_a_shadow_that_is_gone_is_refused(how: str) -> None:
    """It is not bought."""
    async with gateway_stage() as stage:
        base = stage.run("play")[1]
        name = base.rpartition("/")[2]
        stage.held.clear()
        match how:
            case "unknown":
                answer = await post(f"{stage.url}/runs/{'4f' * 16}")
            case "path":
                answer = await post(base)
            case _:
                answer = await post(stage.url, traceparent=f"00-{name}-{name[:16]}-01")
        assert answer.status_code == 410
        assert answer.headers["x-should-retry"] == "false"
        assert stage.sim.requests == []


async def test_a_fenced_run_is_refused_and_its_read_goes_on() -> None:
    """The successor tails what the fenced run has begun; the provider is asked once."""
    async with gateway_stage() as stage:
        run, base = stage.run()
        async with httpx.AsyncClient(trust_env=False, verify=_TLS) as client:
            url = f"{base}/v1/chat/completions"
            async with client.stream("POST", url, json=STREAM) as stream:
                await anext(stream.aiter_bytes())
                run.fence()
        assert (await post(base, STREAM)).json()["error"]["code"] == "fenced"
        _, successor = stage.run()
        assert b"[DONE]" in (await post(successor, STREAM)).content
        assert len(stage.sim.requests) == 1


async def test_a_caller_that_leaves_ends_the_providers_call() -> None:
    """Within a moment, whether the call is on a tape or not."""
    async with gateway_stage() as stage:
        stage.sim.script([Answer(pieces=("a", "b"), fault=Silence(1))] * 2)
        _, base = stage.run()
        for url in (base, stage.url):
            async with httpx.AsyncClient(trust_env=False, verify=_TLS) as client:
                address = f"{url}/v1/chat/completions"
                async with client.stream("POST", address, json=STREAM) as stream:
                    await anext(stream.aiter_bytes())
        await stage.sim.until(lambda sim: all(one.cancelled_at for one in sim.requests))
        assert entry(stage).end == "cut"


async def test_a_caller_that_leaves_before_the_answer_begins_ends_the_call() -> None:
    """The provider has not said a word yet."""
    async with gateway_stage() as stage:
        stage.sim.script([Answer(fault=NeverAnswers())])
        _, base = stage.run()
        asking = asyncio.create_task(post(base))
        await stage.sim.until(lambda sim: bool(sim.requests))
        asking.cancel()
        await asyncio.wait([asking])
        await stage.sim.until(lambda sim: bool(sim.requests[0].cancelled_at))


@pytest.mark.parametrize("correlated", [True, False])
async def test_faults_of_a_provider_pass_as_they_are(correlated: bool) -> None:
    """Status, sentence, and what a client is told about trying again."""
    async with gateway_stage() as stage:
        headers = (("retry-after", "7"), ("x-request-id", "r1"), ("set-cookie", "a=b"))
        stage.sim.script([Answer(status=429, text="Slow down.", headers=headers)])
        run, base = stage.run()
        answer = await post(base if correlated else stage.url)
        assert answer.status_code == 429
        assert answer.json()["error"]["message"] == "Slow down."
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-request-id"] == "r1"
        assert "set-cookie" not in answer.headers
        assert (run.not_before > 0) is correlated
        stage.exchange.finish_recording()
        if correlated:
            played = await post(stage.run("play")[1])
            assert played.status_code == 429
            assert played.headers["retry-after-ms"] == "1"
            assert "retry-after" not in played.headers


@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [(Reset(), 502, ("ReadError", "RemoteProtocolError")), (NeverAnswers(), 504, ("ReadTimeout",))],
)
async def test_a_provider_that_does_not_answer_is_502_or_504(
    fault: Any, status: int, kind: tuple[str, ...], correlated: bool
) -> None:
    """On the tape it is the error that httpx raises, so that every reader knows it."""
    async with gateway_stage() as stage:
        stage.sim.script([Answer(fault=fault)])
        silent = Provider("openai", stage.sim.base_url, silence_seconds=0.05)
        stage.gateway.settings = type(stage.gateway.settings)([silent])
        _, base = stage.run()
        answer = await post(base if correlated else stage.url)
        assert answer.status_code == status
        assert "x-should-retry" not in answer.headers
        assert "127.0.0.1" not in answer.text
        if correlated:
            found = entry(stage).fault
            assert found is not None
            assert found.kind in kind


async def test_a_provider_that_breaks_off_breaks_the_answer_off() -> None:
    """A stream ends without its end; an answer as a whole is an error instead."""
    async with gateway_stage() as stage:
        stage.sim.script([Answer(fault=Cut(1)), Answer(fault=Cut(0))])
        _, base = stage.run()
        with pytest.raises(httpx.RemoteProtocolError):
            await post(base, STREAM)
        assert (await post(base)).status_code == 502


@pytest.mark.parametrize("status", [101, 600])
async def test_a_status_that_is_none_is_502(status: int) -> None:
    """No server can pass it on."""
    async with (
        Origin().script(Reply(status=status)) as origin,
        gateway_stage([Provider("own", origin.url)]) as stage,
    ):
        assert (await post(stage.run()[1])).status_code == 502


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(b'{"a":1}', mtime=0), 200),
        ("zstd", zstandard.compress(b'{"a":1}'), 502),
        ("compress", b"?", 502),
    ],
)
async def test_an_encoded_answer_is_decoded_or_an_error(
    encoding: str, body: bytes, status: int
) -> None:
    """Providers are asked for none; what comes all the same is never passed on unread."""
    async with Origin().script(Reply((body,), headers=(("content-encoding", encoding),))) as origin:
        async with gateway_stage([Provider("own", origin.url)]) as stage:
            answer = await post(stage.run()[1])
        assert answer.status_code == status
        assert "content-encoding" not in answer.headers
        assert origin.asked[0].headers["accept-encoding"] == "identity"
        if status == 200:
            assert answer.json() == {"a": 1}


async def test_callers_show_the_key_and_providers_get_theirs() -> None:
    """The gateway's key goes nowhere, and the provider's stands in its place."""
    async with Origin().script(*[Reply((b"{}",))] * 2) as origin:
        ours = [Provider("own", f"{origin.url}/base", "provider-key")]
        async with gateway_stage(ours, key="gate-key") as stage:
            _, base = stage.run()
            for headers in (
                {},
                {"authorization": "Bearer wrong"},
                {"x_api_key": "gate-ke"},
                {"authorization": "gate-key é"},
            ):
                refused = await post(base, **headers)
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "wrong_key"
            assert (await post(base, authorization="Bearer gate-key")).status_code == 200
            own = {"x_cutover_key": "gate-key", "x_api_key": "their-own"}
            assert (await post(base, path="/own/files", **own)).status_code == 200
            first, second = origin.asked
            assert first.target == "/base/v1/chat/completions"
            assert first.headers["authorization"] == "Bearer provider-key"
            assert second.target == "/base/files"
            assert second.headers["x-api-key"] == "their-own"
            kept = [one.call.canonical for one in stage.exchange.entries]
            assert not any(b"key" in one or b"their-own" in one for one in kept)
            assert not any(name.startswith("x-cutover") for name in second.headers)


async def test_a_redirect_is_not_followed() -> None:
    """It is passed on, and no other origin gets the request."""
    elsewhere = (("location", "http://127.0.0.1:9/evil"),)
    async with Origin().script(Reply(status=307, headers=elsewhere)) as origin:
        async with gateway_stage([Provider("own", origin.url)]) as stage:
            answer = await post(stage.run()[1])
        assert answer.status_code == 307
        assert answer.headers["location"] == "http://127.0.0.1:9/evil"
        assert len(origin.asked) == 1


@pytest.mark.parametrize(
    ("headers", "path", "content", "status", "code"),
    [
        ({"origin": "https://evil.example"}, "/v1/embeddings", b"{}", 403, "foreign_origin"),
        ({"origin": "null"}, "/v1/embeddings", b"{}", 403, "foreign_origin"),
        ({"content-type": "text/plain"}, "/v1/embeddings", b"{}", 415, "no_json"),
        ({"content-type": "text/plain"}, "/v1/messages", b"{}", 415, "no_json"),
        ({}, "/v1/embeddings", b"x" * 2_000, 413, "body_too_large"),
        ({}, "/nowhere/embeddings", b"{}", 404, "unknown_provider"),
        ({TARGET_HEADER: "https://evil.example"}, "/v1/responses", b"{}", 404, "unknown_provider"),
    ],
)
async def test_what_is_not_admitted_reaches_no_provider(
    headers: dict[str, str], path: str, content: bytes, status: int, code: str
) -> None:
    """And is refused in the caller's form."""
    async with gateway_stage(body_bytes=1_000) as stage:
        given = {"content-type": "application/json"} | headers
        async with httpx.AsyncClient(trust_env=False, verify=_TLS) as client:
            answer = await client.post(f"{stage.run()[1]}{path}", content=content, headers=given)
        assert answer.status_code == status
        assert code in answer.text
        assert stage.sim.requests == []


async def test_a_declared_origin_and_other_bodies_are_passed() -> None:
    """A service that passes the headers of a page on, and a file that is uploaded."""
    async with Origin().script(*[Reply((b"{}",))] * 2) as origin:
        origins = frozenset({"https://ours.example"})
        async with gateway_stage([Provider("own", origin.url)], origins=origins) as stage:
            _, base = stage.run()
            assert (await post(base, origin="https://ours.example")).status_code == 200
            async with httpx.AsyncClient(trust_env=False, verify=_TLS) as client:
                sent = {"file": ("a.txt", b"text")}
                answer = await client.post(f"{base}/own/files", files=sent)
            assert answer.status_code == 200
            assert origin.asked[1].headers["content-type"].startswith("multipart/form-data")


async def test_a_large_request_is_passed_whole() -> None:
    """Over a mebibyte its key is made in a thread."""
    async with gateway_stage() as stage:
        picture = "A" * (2 << 20)
        body = CHAT | {"messages": [{"role": "user", "content": picture}]}
        _, base = stage.run()
        assert (await post(base, body)).status_code == 200
        assert stage.sim.requests[0].body == body
