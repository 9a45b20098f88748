"""Scripts: what the stamped target is to do with one request, written in its `content`."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import aiohttp
import msgspec
import uvicorn
import uvloop

from benchmarks.harness import Effort
from benchmarks.rows import BenchRow, at_most
from contract.errors import CutoverError
from contract.flows.chat import CHAT, Accept, ChatEvent, End, Failed, Send, StartReply, Success
from evidence.intervals import percentile
from loadtests.plan import Engine, LoadPlan, PlannedRun
from loadtests.processes import ANNOUNCED, server_process
from loadtests.requests import Target
from loadtests.rows import GeneratorLoad, LoadRow, read_loads, read_rows
from loadtests.runner import OwnProcesses

GOLDEN = 0.618_033_988_75

ScriptEnd = Literal["success", "failed", "cut", "missing", "stall", "refuse", "malformed"]


class ScriptRefused(CutoverError):
    """A script cannot be read."""

    def __init__(self, word: str) -> None:
        super().__init__(f"cannot read {word!r} as a part of a script")


class StampedScript(msgspec.Struct, frozen=True, kw_only=True):
    """An exact schedule, seconds since the request was read.

    `headers` until the response starts, `first` until the first text, then `sends` texts `gap`
    apart: each up to `jitter` later than that, and those of the second half `silence` later. `end`:
    `cut` drops the connection after half of the texts, `missing` ends properly but without the last
    two frames, `stall` goes silent after half of them until the client leaves, `malformed` sends
    one event that is not JSON, `refuse` answers 409 before any frame.
    """

    headers: float = 0.0
    first: float = 0.05
    gap: float = 0.02
    sends: int = 10
    jitter: float = 0.0
    silence: float = 0.0
    end: ScriptEnd = "success"

    def due(self, number: int) -> float:
        """Seconds after which text `number` (from 0) is due."""
        silence = self.silence if number >= self.sends // 2 else 0.0
        # Spread evenly, and the same in every run.
        return self.first + number * self.gap + silence + self.jitter * (number * GOLDEN % 1)

    @property
    def spoken(self) -> int:
        """How many texts are sent."""
        return self.sends // 2 if self.end in ("cut", "stall") else self.sends


def parse_script(text: str) -> StampedScript:
    """Read `first=0.05 gap=0.02 sends=10 end=cut`; raises `ScriptRefused`."""
    values: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or (name == "end" and value not in get_args(ScriptEnd)):
            raise ScriptRefused(word)
        values[name] = value
    try:
        return msgspec.convert(values, StampedScript, strict=False)
    except msgspec.ValidationError as error:
        raise ScriptRefused(text) from error


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WORD = "word "
SSE = [(b"content-type", b"text/event-stream"), (b"x-cutover-served", b"stamped")]
PROBLEM = [(b"content-type", b"application/problem+json")]
BACKLOG = 1_024


class Stamps(msgspec.Struct, frozen=True):
    """When the server read a request and handed each frame to the socket; monotonic ns.

    `sent` is (step, moment); `texts` the moments of those frames by which the text grew.
    """

    message_id: str
    received: int
    sent: tuple[tuple[str, int], ...]
    texts: tuple[int, ...]


class StampedTarget:
    """The ASGI application."""

    def __init__(self) -> None:
        self._stamps: list[Stamps] = []

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        """Serve one request: `POST /chat/sse` or `GET /stamps`."""
        if scope["type"] != "http":
            return
        if scope["path"] == "/stamps":
            await _answer(send, 200, msgspec.json.encode(self._stamps))
            self._stamps.clear()
            return
        received = time.monotonic_ns()
        body = msgspec.json.decode(await _body(receive))
        try:
            script = parse_script(body["content"])
        except ScriptRefused:
            await _answer(send, 400, b'{"code":"bad_script"}', PROBLEM)
            return
        play = _Play(script, receive, send)
        try:
            await play.perform()
        finally:
            self._stamps.append(
                Stamps(body["message_id"], received, tuple(play.sent), tuple(play.texts))
            )


class _Play:
    """One script being performed."""

    def __init__(self, script: StampedScript, receive: Receive, send: AsgiSend) -> None:
        self._script = script
        self._receive = receive
        self._send = send
        self._began = asyncio.get_running_loop().time()
        self.sent: list[tuple[str, int]] = []
        self.texts: list[int] = []

    async def perform(self) -> None:
        await self._until(self._script.headers)
        if self._script.end == "refuse":
            await _answer(self._send, 409, b'{"code":"locked","status":409}', PROBLEM)
            return
        await self._send({"type": "http.response.start", "status": 200, "headers": SSE})
        await self._frame(Accept())
        await self._frame(StartReply())
        for number in range(self._script.spoken):
            await self._until(self._script.due(number))
            await self._frame(Send(WORD * (number + 1)))
        await self._end()

    async def _end(self) -> None:
        match self._script.end:
            case "cut":
                # An application that returns too early makes the server drop the connection.
                return
            case "stall":
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                return
            case "success":
                await self._frame(Success(WORD * self._script.sends))
                await self._frame(End())
            case "failed":
                await self._frame(Failed())
                await self._frame(End())
            case "malformed":
                await self._bytes(b"data: {not json\n\n")
                await self._frame(End())
            case _:
                pass
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until(self, seconds: float) -> None:
        left = self._began + seconds - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    async def _frame(self, event: ChatEvent) -> None:
        frame = CHAT.encode(event)
        at = time.monotonic_ns()
        self.sent.append((CHAT.name_of(event), at))
        if isinstance(event, Send):
            self.texts.append(at)
        await self._bytes(frame)

    async def _bytes(self, frame: bytes) -> None:
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _answer(
    send: AsgiSend, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers or []})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _serve() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening:
        config = uvicorn.Config(
            StampedTarget(),
            log_level="critical",
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=0,
        )
        sys.stdout.write(f"{ANNOUNCED}http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await uvicorn.Server(config).serve(sockets=[listening])


USERS = 50
SECONDS = 6.0
TOLERANCE_MS = 2.0
MILLISECOND = 1_000_000
SCRIPTS = (
    *("first=0.05 gap=0.02 sends=20",) * 6,
    "first=0.2 gap=0.05 sends=8",
    "first=0.1 gap=0.01 sends=40 end=cut",
)


@dataclass(frozen=True, slots=True)
class Truth:
    """What one engine measured of `rows`, and the target's own stamps by message."""

    engine: Engine
    rows: Sequence[LoadRow]
    stamps: Mapping[str, Stamps]
    generators: Sequence[GeneratorLoad]

    def errors(self) -> list[float]:
        """Measured less true moment of every first text, milliseconds, ascending."""
        pairs = self._first_texts()
        return sorted(abs(measured - true) / MILLISECOND for measured, true in pairs)

    def off(self, p: float) -> float:
        """Difference of a percentile of measured TTFTs from that of the true ones, ms."""
        pairs = self._first_texts()
        measured = percentile(sorted(pair[0] for pair in pairs), p)
        true = percentile(sorted(pair[1] for pair in pairs), p)
        return abs(measured - true) / MILLISECOND

    def _first_texts(self) -> list[tuple[int, int]]:
        return [
            (row.first_token, self.stamps[row.message_id].texts[0] - row.sent)
            for row in self.rows
            if row.first_token is not None
        ]

    @property
    def cut_taken_for_served(self) -> int:
        """How many cut streams are not called truncated."""
        return sum(
            row.ending != "truncated"
            for row in self.rows
            if self.stamps[row.message_id].sent[-1][0] != "END"
        )

    @property
    def cpu_per_event(self) -> float:
        """Microseconds of the generator's CPU for each event it read."""
        events = sum(row.events for row in self.rows)
        return sum(generator.cpu for generator in self.generators) * 1e6 / max(events, 1)


async def observe(engine: Engine) -> Truth:
    """Load a stamped target and fetch its stamps."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        messages = write_scripts(folder / "messages.jsonl", SCRIPTS)
        with server_process(__name__) as server:
            target = Target(stack="stamped", url=server.url)
            # An open loop with as many streams under way as a closed one with no pause.
            plan = LoadPlan(
                targets=(target,), messages=messages, users=USERS, seconds=SECONDS, engine=engine
            )
            rate = USERS / 0.65 if engine == "open" else None
            plan = msgspec.structs.replace(plan, think=0.2, rate=rate)
            await OwnProcesses().load(plan, PlannedRun(0, 0, "stamped", 1), folder / "rows")
            stamps = await fetch_stamps(server.url)
        rows = [row for path in (folder / "rows").glob("rows-*") for row in read_rows(path)]
        # What the generator gave up when its time was over may never have reached the target.
        sent = [row for row in rows if row.ending != "cancelled"]
        return Truth(engine, sent, stamps, read_loads(folder / "rows"))


def write_scripts(path: Path, scripts: Sequence[str]) -> Path:
    """Write a messages file that tells the stamped target what to do."""
    lines = [
        msgspec.json.encode({"message_id": f"m{number}", "content": script, "user_name": "ann"})
        for number, script in enumerate(scripts)
    ]
    path.write_bytes(b"\n".join(lines))
    return path


async def fetch_stamps(url: str) -> dict[str, Stamps]:
    """Read, and so reset, the stamps of a target, by message."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/stamps") as response:
        stamps = msgspec.json.decode(await response.read(), type=list[Stamps])
    return {stamp.message_id: stamp for stamp in stamps}


def figures(truth: Truth) -> list[BenchRow]:
    """Put what was observed into figures."""
    errors = truth.errors()
    how = f"{len(errors)} streams, {USERS} users, {truth.engine}, stamped target on loopback"
    name = f"load.{truth.engine}"
    return [
        at_most(f"{name}.ttft_p50_off", truth.off(0.50), "ms", TOLERANCE_MS, how),
        at_most(f"{name}.ttft_p95_off", truth.off(0.95), "ms", TOLERANCE_MS, how),
        at_most(f"{name}.stamp_error_p95", percentile(errors, 0.95), "ms", TOLERANCE_MS, how),
        at_most(f"{name}.cut_taken_for_served", truth.cut_taken_for_served, "streams", 0, how),
        at_most(f"{name}.cpu_per_event", truth.cpu_per_event, "µs", 200.0, how),
    ]


async def measure(_: Effort) -> list[BenchRow]:
    """Measure both engines; takes about twenty seconds."""
    engines: tuple[Engine, ...] = ("locust", "open")
    return [row for engine in engines for row in figures(await observe(engine))]


if __name__ == "__main__":
    uvloop.run(_serve())
