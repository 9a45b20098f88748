"""Time limits of a stack behind an address, on a clock one can move."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from contract.chat import CHAT, ChatOptions, ChatRequest
from contract.flow import Request
from cutover.selftest.world import World
from effects.run import Run
from router.driving import Ending, Order
from router.remote import RemoteStack
from router.remote.draining import PATIENCE, Draining
from router.remote.drive import RemoteDrive
from router.remote.reading import FrameReader
from router.sections import Address

if TYPE_CHECKING:
    import aiohttp

    from router.remote.endpoint import Endpoint

pytestmark = pytest.mark.virtual

REQUEST: Request[ChatRequest, ChatOptions] = Request(ChatRequest(message_id="m"), ChatOptions())
LIMITS = Address(url="http://stack", first_event_seconds=5.0, idle_seconds=2.0, total_seconds=20.0)
ACCEPT, SEND, END = (b'data: {"step":"%b"}\n\n' % name for name in (b"ACCEPT", b"SEND", b"END"))
COMMENT = b": still here\n\n"

Timed = list[tuple[float, bytes]]


@dataclass
class Body:
    """Bytes that come after so many seconds each; b"" is the end."""

    script: list[tuple[float, bytes]]

    def is_eof(self) -> bool:
        """Whether the end has come."""
        return self.script == [(0, b"")]

    async def readany(self) -> bytes:
        """Give the next bytes in their time, or nothing, ever."""
        seconds, piece = self.script.pop(0) if self.script else (3_600.0, b"")
        await asyncio.sleep(seconds)
        return piece


@dataclass
class Response:
    """What aiohttp gives."""

    content: Body
    status: int = 200
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    def close(self) -> None:
        """Drop the connection."""
        self.closed = True


@dataclass
class Scripted:
    """An endpoint that answers after so many seconds."""

    response: Response
    head_after: float = 0.0
    limits: Address = LIMITS
    draining: Draining = field(default_factory=Draining)

    async def ask(self, *_: object) -> Response:
        """Give the head in its time."""
        await asyncio.sleep(self.head_after)
        return self.response


def made(endpoint: Scripted, unsent: int | None = None) -> RemoteDrive:
    """Make a drive of what an endpoint answers."""
    exchange = World().exchange()
    stack = RemoteStack("legacy", LIMITS, cast("aiohttp.ClientSession", None))
    return RemoteDrive(
        Order(CHAT, stack, REQUEST, "serving", unsent=unsent),
        Run(exchange, "run"),
        exchange.stamp,
        cast("Endpoint", endpoint),
        FrameReader(CHAT),
    )


async def driven(script: Timed, head_after: float = 0.0) -> tuple[RemoteDrive, Response, float]:
    """Drive a stack to its end; give the drive, the response and how long it took."""
    loop = asyncio.get_running_loop()
    endpoint = Scripted(Response(Body(list(script))), head_after)
    drive = made(endpoint)
    began = loop.time()
    drive.start()
    assert await drive.gone(3_600)
    took = loop.time() - began
    await asyncio.sleep(PATIENCE)
    return drive, endpoint.response, took


ENDINGS: dict[str, tuple[list[tuple[float, bytes]], float, str, str, float]] = {
    "no head": ([], 3_600, "timeout", "first_event_timeout", 5),
    "no event": ([], 1, "timeout", "first_event_timeout", 5),
    "comments are no event": ([(1, COMMENT)] * 9, 0, "timeout", "first_event_timeout", 5),
    "silence": ([(4, ACCEPT), (1.5, SEND)], 0, "timeout", "idle_timeout", 7.5),
    "half a frame is a sign of life": (
        [(4, ACCEPT), (1.5, SEND[:9]), (1.5, SEND[9:])],
        0,
        "timeout",
        "idle_timeout",
        9,
    ),
    "comments are no silence": (
        [(4, ACCEPT), *[(1.5, COMMENT)] * 3, (1.5, END), (0, b"")],
        0,
        "completed",
        "",
        10,
    ),
    "no end": ([(1, ACCEPT), *[(1, SEND)] * 30], 0, "timeout", "total_timeout", 20),
    "a response that goes on": ([(1, END), *[(0.1, COMMENT)] * 99], 0, "completed", "", 1),
}


@pytest.mark.parametrize("case", ENDINGS)
async def test_a_stack_is_given_so_much_time(case: str) -> None:
    """Each limit has its word, is the stack's fault, and drops the connection."""
    script, head_after, outcome, code, seconds = ENDINGS[case]
    drive, response, took = await driven(script, head_after)
    ending = drive.ending
    assert ending is not None
    assert (ending.outcome, ending.error.code if ending.error else "") == (outcome, code)
    assert took == pytest.approx(seconds)
    assert ending.blame == ("stack" if code else "nobody")
    assert response.closed is (head_after < 3_600)


async def test_a_stack_that_waits_is_not_stalled() -> None:
    """Its own limits hold; the watch over stacks in this process has none to add."""
    drive, _, _ = await driven([(1, ACCEPT), (1, END), (0, b"")])
    assert drive.run.owes_since() is None


async def test_frames_have_the_moment_they_came() -> None:
    """In microseconds of the exchange, those of one piece alike."""
    drive, _, _ = await driven([(1, ACCEPT + SEND[:5]), (1, SEND[5:] + END), (0, b"")])
    assert [(frame.at, frame.data) for frame in drive.frames] == [
        (1_000_000, ACCEPT),
        (2_000_000, SEND),
        (2_000_000, END),
    ]


async def test_comments_before_the_first_event_go_with_it() -> None:
    """Before it they say nothing to anybody; not one is lost."""
    drive, _, _ = await driven([(1, COMMENT), (1, COMMENT + ACCEPT), (1, END), (0, b"")])
    assert [frame.data for frame in drive.frames] == [COMMENT, COMMENT, ACCEPT, END]
    assert [frame.at for frame in drive.frames] == [2_000_000] * 3 + [3_000_000]


async def test_waiting_for_the_client_is_none_of_the_stacks_time() -> None:
    """It is not read meanwhile, however long that takes; then all its limits go on."""
    script = [(1.0, ACCEPT), *[(1.0, SEND)] * 9, (1.0, END), (0.0, b"")]
    body = Body(script)
    drive = made(Scripted(Response(body)), unsent=2 * len(ACCEPT))
    drive.start()
    await asyncio.sleep(100.0)
    assert len(drive.frames) == 3
    assert len(body.script) == 9
    for _ in range(4):
        drive.pace.took(drive.pace.ahead)
        await asyncio.sleep(100.0)
    assert await drive.gone(0.0)
    assert drive.ending == Ending("completed")


async def test_a_stack_that_falls_silent_after_the_client_was_waited_for_is_given_up() -> None:
    """Its time begins again where it stopped."""
    drive = made(Scripted(Response(Body([(1.0, ACCEPT), (0.5, SEND)]))), unsent=1)
    drive.start()
    await asyncio.sleep(100.0)
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        drive.pace.took(drive.pace.ahead)
        await asyncio.sleep(1.0)
    assert await drive.gone(100.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5 + 1.0 + 2.0, abs=0.6)
    assert drive.ending is not None
    assert drive.ending.error is not None
    assert drive.ending.error.code == "idle_timeout"
