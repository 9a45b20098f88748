"""Time limits of a stack behind an address, on a clock one can move."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from contract.flow import Request
from contract.flows.chat import CHAT, ChatOptions, ChatRequest
from contract.wire import FrameReader
from effects.tape import TapeSession
from effects.testing import World
from router.config.schema import RemoteStackSettings
from router.remote.http1 import DRAIN_SECONDS, Response
from router.remote.stack import RemoteRun
from router.serving.run import RunRequest
from router.stack import RunOutcome
from tests.support.scripted_service import HEAD

if TYPE_CHECKING:
    from router.remote.endpoint import Endpoint
    from router.remote.http1 import Connection

pytestmark = pytest.mark.virtual

REQUEST: Request[ChatRequest, ChatOptions] = Request(ChatRequest(message_id="m"), ChatOptions())
LIMITS = RemoteStackSettings(
    url="http://stack", first_event_seconds=5.0, idle_seconds=2.0, total_seconds=20.0
)
ACCEPT, SEND, END = (b'data: {"step":"%b"}\n\n' % name for name in (b"ACCEPT", b"SEND", b"END"))
COMMENT = b": still here\n\n"

Timed = list[tuple[float, bytes]]


@dataclass
class Scripted:
    """An endpoint whose answer comes after so many seconds, and each of its pieces; b"" ends it."""

    script: Timed
    head_after: float = 0.0
    limits: RemoteStackSettings = LIMITS
    dropped: bool = False
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def request(self, *_: object) -> Response:
        """Return the head in its time."""
        self.reads.set()
        await asyncio.sleep(self.head_after)
        answer = Response(cast("Connection", self))
        answer.feed(HEAD + b"\r\n")
        self.tasks.append(asyncio.create_task(self._feed(answer)))
        return answer

    async def _feed(self, answer: Response) -> None:
        while self.script and not self.dropped:
            seconds, piece = self.script[0]
            await self.reads.wait()
            await asyncio.sleep(seconds)
            await self.reads.wait()
            self.script.pop(0)
            answer.feed(b"%x\r\n%b\r\n" % (len(piece), piece) + b"\r\n" * (not piece))

    def pause(self) -> None:
        """Read nothing."""
        self.reads.clear()

    def resume(self) -> None:
        """Read on."""
        self.reads.set()

    def drop(self) -> None:
        """End the connection."""
        self.dropped = True


def made(endpoint: Scripted, unsent: int | None = None) -> RemoteRun:
    """Make a drive of what an endpoint answers."""
    exchange = World().exchange()
    return RemoteRun(
        RunRequest(CHAT, "legacy", REQUEST, "serving", unsent_limit=unsent),
        TapeSession(exchange, "run"),
        cast("Endpoint", endpoint),
        FrameReader(CHAT.dialect),
    )


async def driven(script: Timed, head_after: float = 0.0) -> tuple[RemoteRun, Scripted, float]:
    """Drive a stack to its end; return the drive, its endpoint and how long it took."""
    loop = asyncio.get_running_loop()
    endpoint = Scripted(list(script), head_after)
    drive = made(endpoint)
    began = loop.time()
    drive.start()
    assert await drive.wait_stopped(3_600)
    took = loop.time() - began
    await asyncio.sleep(DRAIN_SECONDS)
    for task in endpoint.tasks:
        task.cancel()
    return drive, endpoint, took


TOO_LARGE = "failed", "frame_too_large", 0

ENDINGS: dict[str, tuple[list[tuple[float, bytes]], float, str, str, float]] = {
    "no head": ([], 3_600, "timeout", "first_event_timeout", 5),
    "no event": ([], 1, "timeout", "first_event_timeout", 5),
    "comments are no event": ([(1, COMMENT)] * 9, 0, "timeout", "first_event_timeout", 5),
    "comments without end": ([(0, b": %b\n\n" % (b"x" * (1 << 20)))] * 9, 0, *TOO_LARGE),
    "a frame without end": ([(0, ACCEPT), *[(0, b"x" * (1 << 20))] * 9], 0, *TOO_LARGE),
    "silence": ([(4, ACCEPT), (1.5, SEND)], 0, "timeout", "idle_timeout", 7.5),
    "silence long before the first event was due": (
        [(1, ACCEPT)],
        0,
        "timeout",
        "idle_timeout",
        3,
    ),
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
    "a loop": ([(1, ACCEPT), *[(0, SEND)] * 5_000], 0, "failed", "runaway", 1),
    "a loop in large pieces": ([(1, ACCEPT), (0, SEND * 5_000)], 0, "failed", "runaway", 1),
    "no end": ([(1, ACCEPT), *[(1, SEND)] * 30], 0, "timeout", "total_timeout", 20),
    "a response that goes on": ([(1, END), *[(0.1, COMMENT)] * 99], 0, "completed", "", 1),
}


@pytest.mark.parametrize("case", ENDINGS)
async def test_a_stack_is_given_so_much_time(case: str) -> None:
    """Each limit has its word, is the stack's fault, and drops the connection."""
    script, head_after, outcome, code, seconds = ENDINGS[case]
    drive, endpoint, took = await driven(script, head_after)
    ending = drive.outcome
    assert ending is not None
    assert (ending.kind, ending.error.code if ending.error else "") == (outcome, code)
    assert took == pytest.approx(seconds)
    assert ending.blame == ("stack" if code else "none")
    ends_well = (0, b"") in script
    assert endpoint.dropped is not (ends_well or head_after == 3_600)


async def test_a_stack_that_waits_is_not_stalled() -> None:
    """Its own limits hold; the watch over stacks in this process has none to add."""
    drive, _, _ = await driven([(1, ACCEPT), (1, END), (0, b"")])
    assert drive.session.idle_since() is None


async def test_frames_have_the_moment_they_came() -> None:
    """In microseconds of the exchange, those of one piece alike."""
    drive, _, _ = await driven([(1, ACCEPT + SEND[:5]), (1, SEND[5:] + END), (0, b"")])
    assert [(frame.at, frame.data) for frame in drive.frames] == [
        (1_000_000, ACCEPT),
        (2_000_000, SEND),
        (2_000_000, END),
    ]


async def test_comments_before_the_first_event_go_with_it() -> None:
    """Before it they are held; not one is lost."""
    drive, _, _ = await driven([(1, COMMENT), (1, COMMENT + ACCEPT), (1, END), (0, b"")])
    assert [frame.data for frame in drive.frames] == [COMMENT, COMMENT, ACCEPT, END]
    assert [frame.at for frame in drive.frames] == [2_000_000] * 3 + [3_000_000]


async def test_waiting_for_the_client_is_none_of_the_stacks_time() -> None:
    """It is not read meanwhile, however long that takes; then all its limits go on."""
    script = [(1.0, ACCEPT), *[(1.0, SEND)] * 9, (1.0, END), (0.0, b"")]
    drive = made(Scripted(script), unsent=2 * len(ACCEPT))
    drive.start()
    await asyncio.sleep(100.0)
    assert len(drive.frames) == 3
    assert len(script) == 9
    for _ in range(4):
        drive.backpressure.take(drive.backpressure.unsent)
        await asyncio.sleep(100.0)
    assert await drive.wait_stopped(0.0)
    assert drive.outcome == RunOutcome("completed")


async def test_a_stack_that_falls_silent_after_the_client_was_waited_for_is_given_up() -> None:
    """Its time begins again where it stopped."""
    drive = made(Scripted([(1.0, ACCEPT), (0.5, SEND)]), unsent=1)
    drive.start()
    await asyncio.sleep(100.0)
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        drive.backpressure.take(drive.backpressure.unsent)
        await asyncio.sleep(1.0)
    assert await drive.wait_stopped(100.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5 + 1.0 + 2.0, abs=0.6)
    assert drive.outcome is not None
    assert drive.outcome.error is not None
    assert drive.outcome.error.code == "idle_timeout"
