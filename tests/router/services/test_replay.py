"""Replays by services: asked over HTTP, and answered by the gateway from the tape."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from cutover import Exchange, Request
from cutover.errors import Completed
from cutover.tape import Fork
from cutover.wire import find_dialect
from harness.root import equal
from router.captures import CaptureReader, Captures, Redactor, Store
from router.captures.replay import Replay, Target
from router.driver import Candidate
from router.exchange import Served, finish
from router.serve import serve
from router.services import Address, Service, ServiceFlow, open_session
from router.services.flow import ServiceRequest
from tests.support.gateway import gateway_stage
from tests.support.services import serving

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

FLOW = ServiceFlow("bot", {"/chat": ("POST",)}, find_dialect("chat-completions"))
ASKED = ServiceRequest("POST", "/chat", "application/json", '{"text":"I am john.doe@example.com"}')
App = Callable[[Any, Any, Any], Awaitable[None]]


def bot(prompt: str, *, correlates: bool = True) -> App:
    """Return a service that passes the stream of a model on."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        assert headers["content-type"] == "application/json"
        text = msgspec.json.decode((await receive())["body"])["text"]
        body = {
            "model": "gpt",
            "stream": True,
            "messages": [{"role": "user", "content": f"{prompt} {text}"}],
        }
        url = headers["x-cutover-gateway"]
        async with httpx.AsyncClient() as client:
            base = url if correlates else url.partition("/runs/")[0]
            answer = await client.post(f"{base}/v1/chat/completions", json=body)
        media = answer.headers["content-type"].encode()
        head = {"status": answer.status_code, "headers": [(b"content-type", media)]}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": answer.content})

    return app


async def no_pause(*_: Any) -> None:
    """No flow of services pauses."""


@pytest.mark.parametrize(
    ("app", "state", "fork"),
    [
        (bot("Answer shortly:"), "equal", None),
        (bot("Answer at length:"), "different", None),
        (bot("Answer shortly:", correlates=False), "different", None),
        (bot("Answer at length:"), "different", Fork(1, "gpt-new")),
        (bot("Answer at length:", correlates=False), "not_reached", Fork(1)),
    ],
    ids=["the same", "another prompt", "without the run", "a fork", "a fork without the run"],
)
async def test_a_service_replays_from_the_tape(
    tmp_path: Path, app: App, state: str, fork: Fork | None
) -> None:
    """Redacted, with the type of the body it was sent; the model is asked by forks alone."""
    store, redactor = Store(str(tmp_path)), Redactor(b"0123456789abcdef")
    async with (
        gateway_stage() as stage,
        serving(bot("Answer shortly:")) as old,
        serving(app) as new,
        open_session() as session,
    ):

        def candidate(name: str, url: str) -> Candidate:
            back = stage.gateway.runs, stage.url
            return Candidate(name, Service(Address(url), FLOW.dialect, session, *back), remote=True)

        request = Request(ASKED, None, "/chat", (("content-type", "application/json"),))
        served = Served("e", FLOW, request, Exchange(), "legacy")
        async for _ in serve(served, [candidate("legacy", old)], no_pause):
            pass
        await finish(served)
        assert served.outcome == Completed()
        async with Captures(store, redactor) as captures:
            captures.served(served)
        asked = len(stage.sim.requests)
        stage.gateway.settings = replace(stage.gateway.settings, replays=True)
        targets = {"bot": Target(FLOW, {"graph": candidate("graph", new)})}
        async with Captures(store, None) as out:
            work = Replay("graph", targets, equal, out, redactor, fork=fork)
            await work.run(CaptureReader(store))
    assert work.counts == {"read": 1, state: 1}
    live = [one.body["model"] for one in stage.sim.requests[asked:]]
    assert live == (["gpt-new"] if fork and fork.model else [])
    assert "john.doe" not in str(list(CaptureReader(store)))
