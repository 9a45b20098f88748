"""Log lines of a whole deployment: those of a request say which exchange they are of."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cutover.server.logging import log_formatter
from cutover.wiring.stacks import load_stacks
from router.serving.stack import LocalStack
from router.stack import FIELDS
from tests.support.deployment import Setup, deployed
from tests.support.faulty_stacks import after, crash
from tests.support.log_records import listening

pytestmark = pytest.mark.sockets

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
