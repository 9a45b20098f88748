"""Log lines of a whole deployment: those of a request say which exchange they are of."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import aiohttp
import msgspec
import pytest

from cutover.server.logging import log_formatter
from cutover.wiring.stacks import load_stacks
from loadtests.simulator import running
from router.serving.stack import LocalStack
from router.stack import FIELDS
from tests.e2e.processes import router_process
from tests.support.deployment import PLANTED_KEY, Setup, deployed
from tests.support.faulty_stacks import after, crash
from tests.support.log_records import listening

pytestmark = pytest.mark.sockets

SAID = "no word of this"
HELLO = {"message_id": "m", "content": "Hello"}


async def test_a_takeover_is_said_of_its_exchange(tmp_path: Path) -> None:
    """By the task that serves the request, and the stack that crashed."""
    stacks = load_stacks()
    chat = after(stacks["graph"].flows["chat"], 3, crash)
    stacks["graph"] = LocalStack("graph", {"chat": chat}, "g1")
    more = '[log]\nformat = "json"\n'
    with listening() as lines:
        async with deployed(tmp_path, Setup(stack="graph", stacks=stacks, more=more)) as place:
            answers = [await place.ask(HELLO | {"message_id": one}) for one in ("a", "b")]
            await place.ask(b"no request")
            await place.settled()
    ids = [answer.headers["x-cutover-exchange"] for answer in answers]
    assert lines.exchanges("run failed") == ids
    assert [one["then"] for one in lines.failures] == ["takeover by legacy"] * 2
    assert [fields["exchange"] for said, _, fields in lines.said if said == "exchange"] == ids
    assert lines.fields("turned away") == {"flow": "chat", "status": 400, "code": "not_json"}


async def test_before_the_first_frame_it_is_no_takeover(tmp_path: Path) -> None:
    """The log tells apart what the books count apart."""
    stacks = load_stacks()
    chat = after(stacks["graph"].flows["chat"], 0, crash)
    stacks["graph"] = LocalStack("graph", {"chat": chat}, "g1")
    with listening() as lines:
        async with deployed(tmp_path, Setup(stack="graph", stacks=stacks)) as place:
            answer = await place.ask(HELLO)
            books = await place.get("/readyz")
    ids = [answer.headers["x-cutover-exchange"]]
    assert lines.exchanges("run failed") == ids
    assert lines.fields("run failed")["then"] == "fallback by legacy"
    assert (books["counts"]["fallbacks"], books["counts"]["takeovers"]) == (1, 0)


async def test_each_exchange_is_one_line_in_the_text_format_too(tmp_path: Path) -> None:
    """Of which the text leaves out what is empty."""
    with listening() as lines:
        async with deployed(tmp_path) as place:
            answer = await place.ask(HELLO)
            await place.settled()
    fields = lines.fields()
    assert fields["exchange"] == answer.headers["x-cutover-exchange"]
    assert (fields["message"], fields["outcome"]) == ("m", "completed")
    record = logging.makeLogRecord({"name": "a", "msg": "exchange", FIELDS: fields})
    text = log_formatter(place.services.router.settings(), {}).format(record)
    assert " nodes_ms=initialize:" in text
    assert " message=m " in text
    assert " error=" not in text


async def test_serve_logs_the_steps_of_the_exchanges_that_are_named(tmp_path: Path) -> None:
    """By `--debug-exchange`, in every worker: of a message, of a session, of no other exchange."""
    named = ["--debug-exchange", "m-2", "--debug-exchange", "c-3", "--workers", "2"]
    log = '[log]\nformat = "json"\n'
    others = f"sqlite:///{tmp_path}/store.sqlite"
    setup = Setup(stack="graph", others=others, more=log)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        router_process(tmp_path, provider.base_url, setup, *named) as router,
        aiohttp.ClientSession() as session,
    ):
        bodies = [
            {"message_id": f"m-{n}", "chat_id": f"c-{n}", "content": SAID} for n in range(1, 4)
        ]
        answers = [await router.ask(session, body) for body in bodies]
        router.child.send_signal(signal.SIGTERM)
        assert await router.child.wait() == 0
    lines = list(map(msgspec.json.decode, (tmp_path / "log").read_bytes().splitlines()))
    steps = [line for line in lines if line["event"] == "step"]
    ids = [answer.headers["x-cutover-exchange"] for answer in answers]
    assert {line["exchange"] for line in steps} == {*ids[1:]}
    assert {line["step"] for line in steps} == {"call", "state", "frame", "node", "end"}
    states = [line for line in steps if line["step"] == "state"]
    assert {"messages", "draft", "finish"} <= {key for line in states for key in line["bytes"]}
    assert {line["event"] for line in lines if line.get("exchange") == ids[0]} == {"exchange"}
    assert SAID not in str(lines)
