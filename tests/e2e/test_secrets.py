"""Keys and personal data appear in nothing that is written."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cutover.server.logging import log_formatter
from cutover.wiring.stacks import load_stacks
from effects.tools import ToolContext, tool
from router.serving.stack import LocalStack
from tests.support.deployment import (
    KEY,
    PLANTED_KEY,
    QA_KEY,
    Deployment,
    Setup,
    captured,
    deployed,
    until,
)
from tests.support.log_records import attached

if TYPE_CHECKING:
    from contract.flow import Event, Request
    from contract.ports import Effects
    from router.stack import StackName

pytestmark = pytest.mark.sockets

PERSONAL = (
    "ann.secret@example.org",
    "13812345678",
    "+49 151 23456789",
    "11010519491231002X",
    "4111 1111 1111 1111",
    "EMP-778899",
    "sk-users0own0key0that0leaked",
)
NAME = "Secretia Vertraulich"
TEXT = f"I am {NAME}. Reach me: " + ", ".join(PERSONAL) + "."
NAMELESS = TEXT.replace(NAME, "nobody")
MORE = """
[captures.redact.patterns]
employee = 'EMP-[0-9]{6}'
[models.fails]
provider = "simulated"
model = "sim-chat?ending=cut&after=5"
"""
QA = "a-key-for-signing"
SECRETS = {KEY: PLANTED_KEY, QA_KEY: QA}


class Search(msgspec.Struct):
    """Arguments of a tool that is asked with whatever the user wrote."""

    query: str = ""


@tool("no_such_tool", "Repeats what users say.", Search, read_only=True)
async def telling(_: Search, __: ToolContext) -> str:
    """Answer with personal data, which the model then quotes token by token."""
    return ", ".join(PERSONAL)


class Upset(Exception):
    """What a careless stack raises."""


def careless(stack: LocalStack) -> LocalStack:
    """Make a stack that crashes with the user's words in its exception, on ids with `crash`."""
    chat = stack.flows["chat"]

    async def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async for event in chat(request, effects):
            yield event
            if "crash" in request.body.message_id:
                raise Upset(request.body.content)

    return LocalStack(stack.name, {"chat": flow}, stack.fingerprint)


@contextmanager
def logged(place: Deployment, environ: Mapping[str, str] = SECRETS) -> Iterator[io.StringIO]:
    """Collect what the router's process would log, at the finest level."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(log_formatter(place.watched.settings(), environ))
    with attached(handler, logging.DEBUG):
        yield said


def leaks(text: str) -> list[str]:
    """Return what was planted and stands in a text, as it is, escaped, or with its gaps closed."""
    plain = text + text.encode().decode("unicode_escape", "replace")
    closed = re.sub(r"[\s.-]", "", plain)
    return [
        one
        for one in (*PERSONAL, NAME, PLANTED_KEY, QA)
        if one in plain or re.sub(r"[\s.-]", "", one) in closed
    ]


def on_disk(folder: Path) -> bytes:
    """Return all files as they are, the store's included."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def joined(line: bytes) -> str:
    """Put the pieces of a line's texts together, as a reader of the record could."""
    pieces: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for below in value.values():
                walk(below)
        elif isinstance(value, list):
            for below in value:
                walk(below)
        elif isinstance(value, str):
            pieces.append(value)

    walk(json.loads(line))
    return "".join(pieces)


def deltas(line: bytes) -> str:
    """Put together what a model said, chunk by chunk: where a value may hide in pieces."""
    record = json.loads(line)
    items = [item for entry in record.get("tape") or () for item in entry.get("items", ())]
    return "".join(item.get("text", "") for item in items if isinstance(item, dict))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "lines"), [("legacy", "text"), ("graph", "text"), ("graph", "json")]
)
async def test_nothing_planted_is_ever_written_down(
    tmp_path: Path, stack: StackName, lines: str
) -> None:
    """Captures, feedback, logs and problems: whole, by line, joined, and over chunks."""
    stacks = load_stacks()
    stacks[stack] = careless(stacks[stack])
    environ = {QA_KEY: QA, "OPENAI_API_KEY": PLANTED_KEY}
    more = f'{MORE}[log]\nformat = "{lines}"\n'
    setup = Setup(stack=stack, shadow=100, more=more, stacks=stacks, environ=environ)
    async with deployed(tmp_path, setup) as place:
        with logged(place) as said:
            answers = await _converse(place)
            await place.settled()
            await place.services.captures.flush()
        log = said.getvalue()
        assert place.services.router.counts.takeovers == (stack == "graph")
        ready = json.dumps(await place.get("/readyz"))
    assert "Upset" in log
    assert all(line.startswith("{") for line in log.splitlines()) is (lines == "json")
    assert leaks(log) == []
    assert leaks(ready) == []
    assert PLANTED_KEY not in answers
    assert PERSONAL[0] in answers, "the model was to quote it"
    everything = captured(tmp_path)
    assert len(everything.splitlines()) > 10
    assert leaks(everything.decode()) == []
    for line in everything.splitlines():
        assert leaks(joined(line)) == []
        assert leaks(deltas(line)) == []
    assert PLANTED_KEY.encode() not in on_disk(tmp_path)


async def _converse(place: Deployment) -> str:
    """Serve, call tools, crash, fail, refuse, leave and comment, with planted data everywhere."""
    place.services.live.tools.register(telling)
    whole = {
        "content": TEXT,
        "user_name": NAME,
        "chat_id": "c",
        "prompt_params": {"current_time": TEXT, "current_date": PERSONAL[0]},
    }
    called = {"content": f"Do you remember {PERSONAL[0]} {PERSONAL[1]}? Call no such tool."}
    failing = {"model_config": {"model_id": "fails"}}
    bodies: list[dict[str, Any]] = [
        {"message_id": "said"} | whole,
        {"message_id": "called"} | whole | called,
        # A name is known as such in its exchange's record only, not in an exception's text.
        {"message_id": "crash"} | whole | {"content": NAMELESS},
        {"message_id": "failed"} | whole | failing,
        {"message_id": PERSONAL[0]},
        {"message_id": "model", "content": NAMELESS, "model_config": {"model_id": PERSONAL[0]}},
    ]
    answers = [await place.ask(body) for body in bodies]
    async with place.post(
        {"message_id": "left", "model_config": {"model_id": "slow"}} | whole
    ) as r:
        while b"SEND" not in await r.content.readline():
            pass
        r.close()
    await place.provider.ledger.until("cancelled", 1)
    await until(lambda: place.services.router.counts.disconnected == 1)
    for answer in answers:
        comment = {"exchange_id": answer.headers["x-cutover-exchange"], "score": -1}
        data = comment | {"comment": NAMELESS}
        async with place.session.post(f"{place.url}/feedback", json=data) as response:
            assert response.status == 202
    return "".join(answer.body.decode() for answer in answers)
