"""Answers of a remote stack that break as HTTP, not as streams: no exception is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.deployment import Answer as Got
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.scripted_service import (
    FRAMES,
    HELLO,
    WHOLE,
    Answer,
    Asked,
    Stream,
    says,
    serving,
)

pytestmark = pytest.mark.sockets

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
BUSY = b'{"code":"busy","detail":"try later"}'
JSON = b"content-type: application/json"


def raw(*pieces: bytes) -> Answer:
    """Write bytes that need be no HTTP, then break the connection off."""

    async def answer(_: Asked, stream: Stream) -> None:
        for piece in pieces:
            await stream.raw(piece)
        # Closed and not reset: what was written is to arrive.
        stream.writer.close()

    return answer


def chunk(data: bytes) -> bytes:
    """Encode a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def house(folder: Path, answer: Answer, *, stand_in: bool) -> AsyncIterator[Deployment]:
    """Deploy a router before a service that answers so; graph, in process, may stand in or not."""
    async with serving(answer) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}/chat/sse"\n'
        async with deployed(folder, Setup(more=stacks)) as place:
            text = place.watched.path.read_text("utf-8")
            switch = f"[flows.chat]\nfallback_to_graph = {str(stand_in).lower()}"
            place.edit(text.replace("[flows.chat]", switch, 1))
            yield place


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
BEFORE: dict[str, Answer] = {
    "hangs up": raw(),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "half a head": raw(HEAD),
    "half a frame, then nothing": raw(CHUNKED + chunk(FRAMES[0][:9])),
    "a chunk that is none": raw(CHUNKED + b"zz\r\nnothing\r\n"),
    "less than it promised": raw(HEAD + b"content-length: 900\r\n\r\n" + FRAMES[0][:9]),
    "busy": says(503, BUSY, JSON, b"retry-after: 7"),
}


@pytest.mark.parametrize("fault", BEFORE)
async def test_what_breaks_before_the_first_frame_falls_back(tmp_path: Path, fault: str) -> None:
    """The client sees one whole stream of the other stack; the record says why."""
    async with house(tmp_path, BEFORE[fault], stand_in=True) as place:
        got = await place.ask(HELLO)
        assert got.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]
        failed, served = await place.lines()
        assert (failed.role, served.role, served.outcome) == ("serving", "fallback", "completed")
        code = "bad_status" if fault == "busy" else "connection_lost"
        assert (failed.error and failed.error.code, served.reason) == (code, code)


@pytest.mark.parametrize("fault", BEFORE)
async def test_what_breaks_with_nobody_to_stand_in_is_a_problem(tmp_path: Path, fault: str) -> None:
    """In our own words: neither an exception's text nor the stack's is in it."""
    async with house(tmp_path, BEFORE[fault], stand_in=False) as place:
        got = await place.ask(HELLO)
        assert (got.status, got.problem["code"]) == (500, "internal")
        assert set(got.problem) == {"title", "status", "code"}


AFTER: dict[str, Answer] = {
    "less than it promised": raw(HEAD + b"content-length: 900\r\n\r\n" + FRAMES[0]),
    "half a frame": raw(CHUNKED + chunk(FRAMES[0] + FRAMES[1][:9])),
    "no terminal frame": raw(CHUNKED + chunk(FRAMES[0]) + b"0\r\n\r\n"),
}


@pytest.mark.parametrize("fault", AFTER)
async def test_what_breaks_later_ends_honestly(tmp_path: Path, fault: str) -> None:
    """Failure frames behind whole frames: no half of one, no silent cut."""
    async with house(tmp_path, AFTER[fault], stand_in=False) as place:
        got = await place.ask(HELLO)
        assert got.body.startswith(FRAMES[0])
        assert failed(got)
        run = await place.run()
        assert (run.outcome, run.tape) == ("truncated", ())


def failed(got: Got) -> bool:
    """Whether an answer ends in the flow's failure frames, and says no more than that."""
    return got.events[1:] == [{"step": "FAILED", "code": "internal"}, {"step": "END"}]


async def test_garbage_between_frames_passes_as_it_is(tmp_path: Path) -> None:
    """Frames are not parsed on their way: what is none of the flow's is the client's to skip."""
    garbage = b'data: {"step":"SE\n\n' + b"\xff\xfe\x00\n\n"
    body = FRAMES[0] + garbage + b"".join(FRAMES[1:])
    async with house(tmp_path, raw(CHUNKED + chunk(body) + b"0\r\n\r\n"), stand_in=False) as place:
        assert (await place.ask(HELLO)).body == body
        assert (await place.run()).outcome == "completed"


async def test_a_refusal_that_says_when_to_come_back(tmp_path: Path) -> None:
    """429 is the stack's answer to this client: it passes, and no other stack is asked."""
    async with house(tmp_path, says(429, BUSY, JSON, b"retry-after: 7"), stand_in=True) as place:
        got = await place.ask(HELLO)
        assert (got.status, got.body, got.headers["retry-after"]) == (429, BUSY, "7")
        assert [run.outcome for run in await place.lines()] == ["refused"]


async def test_a_whole_answer_of_known_length(tmp_path: Path) -> None:
    """Not chunked, and the connection closed behind it."""
    answer = raw(HEAD + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE)
    async with house(tmp_path, answer, stand_in=False) as place:
        assert (await place.ask(HELLO)).body == WHOLE
