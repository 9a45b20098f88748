"""Mutated streams, bodies and heads: whatever comes in, only what is declared comes out."""

import asyncio
import json
import logging
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cutover.errors import Refused
from cutover.flow import ClientRequest
from cutover.wire import BlockTooLong, Piece, Reader, ServiceFraming, built_in, find_dialect
from router.services import ServiceFlow
from router.takeover import Due, PrefixMismatch, Sent
from rules.flows import FLOWS
from tests.support.crowd import at_once
from tests.support.mutations import mutated
from tests.support.origin import Origin
from tests.support.processes import RouterProcess

pytestmark = pytest.mark.nightly
log = logging.getLogger(__name__)

TRIES = int(os.environ.get("CUTOVER_FUZZ", "100000"))
RECORDINGS = Path(__file__).parents[1] / "cutover" / "wire" / "recordings"
LIMIT = 1 << 16
WAITS_SECONDS = 0.3


def cut(drawn: random.Random, data: bytes) -> list[bytes]:
    """Return data in pieces."""
    places = sorted(drawn.randint(0, len(data)) for _ in range(drawn.randint(0, 3)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("dialect", built_in())
def test_a_mutated_stream_raises_nothing_else(dialect: str) -> None:
    """100 000 of each dialect: `BlockTooLong`, and `PrefixMismatch` of a successor."""
    drawn, form, seen = random.Random(dialect), find_dialect(dialect), Counter[str]()
    names = [one for one in sorted(RECORDINGS.iterdir()) if one.suffix != ".toml"]
    seeds = [one.read_bytes() for one in names]
    own = [one.read_bytes() for one in names if one.name.startswith(dialect.partition("-")[0])]
    for _ in range(TRIES):
        data = mutated(drawn, own if own and drawn.random() < 0.8 else seeds)
        try:
            reader = Reader(form, joins=drawn.random() < 0.5, limit=LIMIT)
            for piece in cut(drawn, data):
                reader.feed(piece)
            reader.close(torn=drawn.random() < 0.5)
            seen[type(reader.ending).__name__] += 1
            if drawn.random() < 0.2:
                take_over(drawn, form, data, mutated(drawn, [data]))
        except (BlockTooLong, PrefixMismatch) as error:
            seen[type(error).__name__] += 1
        except Exception as error:
            error.add_note(repr(data))
            raise
    assert seen["Completed"]
    assert seen["Failed"]


def take_over(drawn: random.Random, form: Any, first: bytes, second: bytes) -> None:
    """Read a stream, and another one in its place behind some of its frames."""
    framing, sent = ServiceFraming(form, None, LIMIT), Sent()
    frames = list(framing.read(Piece(first)))
    due = Due(sent, framing)
    for frame in frames[: drawn.randint(0, len(frames))]:
        if (new := due.feed(frame)) is not None:
            sent.add(new)
    following = ServiceFraming(form, framing if sent else None, LIMIT)
    due = Due(sent, following)
    for frame in following.read(Piece(second)):
        if (new := due.feed(frame)) is not None:
            sent.add(new)


BODIES: dict[str, list[Any]] = {
    "chat": [
        {"message_id": "m", "content": "Hi", "chat_id": "c", "user_id": "u", "user_name": "A"},
        {"message_id": "m", "content": "Hi", "model_config": {"temperature": 0.5, "max_tokens": 9}},
        {"message_id": "m", "content": "你好", "prompt_params": {"name": "x", "n": 1.5, "z": None}},
    ],
    "companion": [{"session_id": "s", "message": "I am happy", "image": None}],
    "session": [{"message": "我叫什么？", "user_id": "u", "session_id": "s", "stream": True}],
    "pipeline": [{"user_id": "u", "session_id": "p", "message": "还记得吗？"}],
    "ops": [
        {"session_id": "o", "input": "check the disk", "max_iterations": 3},
        {"approval_id": "a", "approved": True, "by": "ada"},
    ],
}


@pytest.mark.parametrize("name", [*BODIES, "declared"])
def test_a_mutated_body_is_read_or_refused(name: str) -> None:
    """100 000 of each flow: a struct whose route keys are text, or `Refused`."""
    drawn, seen = random.Random(name), Counter[Any]()
    bodies = [one for known in BODIES.values() for one in known]
    seeds = [json.dumps(one, ensure_ascii=False).encode() for one in BODIES.get(name, bodies)]
    places = {"a": "body.user_id", "b": "body.a.0.b", "c": "query.x", "d": "header.y"}
    flow: Any = FLOWS.get(name) or ServiceFlow("mine", {}, find_dialect("text"), places)
    paths = list(getattr(flow, "requests", ())) or ["/ask"]
    media = ["application/json", "application/json; charset=utf-8", "text/plain", ""]
    media += ["application/x-www-form-urlencoded"] if name == "declared" else []
    for _ in range(TRIES):
        content = mutated(drawn, seeds)
        target = f"/ask?{mutated(drawn, [b'x=1&y=2']).decode('latin-1')}"
        headers = [("content-type", drawn.choices(media, [9, 1, 1, 1, 3][: len(media)])[0])]
        asked = ClientRequest("POST", drawn.choice(paths), target, headers, content)
        try:
            body = flow.body(asked)
            keys = [flow.key(body, one) for one in ("", "user_id", "chat_id", *places)]
            assert all(isinstance(one, str) for one in keys)
            seen["read"] += 1
        except Refused as refused:
            seen[refused.status] += 1
        except Exception as error:
            error.add_note(f"{content!r} {target!r}")
            raise
    assert set(seen) <= {"read", 400, 415, 422}
    assert seen["read"] > TRIES / 100, seen


HEADS = [
    one.replace(b"\n", b"\r\n")
    for one in Path(__file__).with_name("requests.txt").read_bytes().split(b"\n--\n")
]


@pytest.mark.sockets
async def test_a_mutated_request_finds_no_error_of_ours(tmp_path: Path) -> None:
    """100 000 requests over sockets: the server answers or closes, and logs no traceback."""
    drawn, seen = random.Random(7), Counter[str]()
    async with Origin() as away:
        await away.__aexit__()  # nothing listens there: 5xx is right, and there alone
        tables: dict[str, Any] = {
            "server": {"flag_token": "token", "origins": ["http://friend"]},
            "stacks": {"legacy": {"url": away.url}},
            "flows": {
                "mine": {
                    "paths": ["/ask", "/threads/{thread}/runs"],
                    "methods": ["GET", "POST"],
                    "keys": {"x": "query.x", "a": "body.a", "h": "header.y"},
                },
                **{name: {} for name in FLOWS},
            },
        }
        async with RouterProcess(tmp_path, tables) as router:

            async def one(head: bytes) -> None:
                status = await answered(router.port, head)
                seen[status] += 1
                assert not status.startswith("5") or b"/ask" in head or b"/runs" in head, head

            heads = (mutated(drawn, HEADS, 3) for _ in range(TRIES))
            await at_once(64, heads, one)
            said = router.log
    log.info("requests=%s", dict(seen))
    assert not said.count("Traceback"), said[said.index("Traceback") - 500 :][:4000]
    assert seen["200"]
    assert seen["400"]


async def answered(port: int, head: bytes) -> str:
    """Return the status of the first answer to some bytes; "" where the server closes.

    Where it waits for the rest, the client leaves.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head)
        async with asyncio.timeout(WAITS_SECONDS):
            line = await reader.readline()
    except TimeoutError:
        return "waits"
    except ConnectionError:
        return ""
    finally:
        writer.transport.abort()
    return line.split(b" ")[1].decode() if line.startswith(b"HTTP/1.") else ""
