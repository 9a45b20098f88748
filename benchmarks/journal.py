"""Kills routers that go on from approved pauses: no tool runs twice, each outcome is told.

A child process resumes a pause of the companion flow, on real stores, with tools whose runs are
written to a file; it is killed with SIGKILL at a random moment. Then this process resumes the same
pause, as the next router would: on either stack, a minute later by its clock.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import msgspec

from benchmarks.harness import QUICK, Effort
from benchmarks.rows import SEED, BenchRow, at_most, reported
from contract.errors import CutoverError
from contract.flows.companion import COMPANION, CompanionOptions, MessageTurn
from contract.human import HumanAnswer
from contract.model import Chunk, ModelCall, ToolCallDelta, ToolMessage
from contract.wire.sse import SseDecoder
from cutover.wiring.composition import LivePorts
from cutover.wiring.router import assemble_router
from cutover.wiring.stacks import load_stacks
from effects.memory import InMemoryMemory
from effects.model import ScriptedModel, Step, Wait, says
from effects.stores import ProcessLocks, SqlConversations, SqlPauses
from effects.tools import ToolContext, ToolRegistry, schema_tool
from router.capture.writer import CaptureCounts
from router.config.schema import FlowSettings, RolloutSettings, Settings
from router.problems import Problem
from router.resume.pauses import Pauses, log_unknown
from router.router import Router
from router.serving.stream import ServedStream
from router.stack import StackName

KILLS: Final = 500
QUICK_KILLS: Final = 20
POSTGRES: Final = os.environ.get("CUTOVER_BENCH_POSTGRES", "")
STACKS: Final[tuple[StackName, ...]] = ("legacy", "graph")
PAYMENTS: Final = ("pay_a", "pay_b", "pay_c")
_PAYS_S: Final = 0.03
_LATER_S: Final = 60.0
"""How far the next router's clock is ahead: the lease of the killed one is over."""
_DAY_S: Final = 86_400.0
_DONE_S: Final = 60.0
_TYPICAL_S: Final = 0.1
_TOOLS_S: Final = 4 * _PAYS_S
_ALONE_EVERY: Final = 25
_LOOKS_S: Final = 0.002
_PRELOADED: Final = [__name__, "effects.stores.postgres", "legacy", "graph_impl"]
_FORM: Final = '{"title":"Pay?","fields":[{"name":"sum","label":"Sum","type":"text"}]}'
_RESUMES: Final = b"resumes"


class NoQuestion(CutoverError):
    """A turn that was to ask a human has ended without a question."""

    def __init__(self, frames: bytes) -> None:
        super().__init__(f"no question in {frames!r}")


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and what followed: what the tools did, what both clients were told.

    `runs` counts by tool how often it has begun, `ends` those that came to their end. The outcomes
    that a client was told are "ok" or the error, by tool.
    """

    seconds: float
    stacks: tuple[StackName, StackName]
    runs: Counter[str]
    ends: Counter[str]
    first: dict[str, str]
    then: dict[str, str]
    reported: tuple[str, ...]
    finished: bool
    completed: bool
    replies: int

    @property
    def faults(self) -> Iterator[str]:
        """What must not have happened."""
        told = self.first if self.finished else self.then
        for name in PAYMENTS:
            if self.runs[name] > 1:
                yield f"{name} ran {self.runs[name]} times"
            if name not in told:
                yield f"the outcome of {name} was not told"
            elif told[name] == "ok" and not self.ends[name]:
                yield f"{name} was told to have run"
            elif told[name] == "outcome_unknown" and name not in self.reported:
                yield f"{name} is unknown, and the audit was not told"
            elif told[name] not in {"ok", "outcome_unknown"}:
                yield f"{name} ended in {told[name]}"
            if self.first.get(name, told.get(name)) != told.get(name):
                yield f"{name} was told twice, differently"
        if not self.completed:
            yield "the exchange did not come to its end"
        if self.replies != 1:
            yield f"{self.replies} replies are stored"


@dataclass(slots=True)
class _NoCaptures:
    counts: Any = field(default_factory=CaptureCounts)

    def put(self, _records: Sequence[Any], _values: Any = None) -> None:
        """Drop the lines of an exchange."""

    def put_later(self, _record: Any, _values: Any) -> None:
        """Drop the line of a second run."""

    def feedback(self, _record: Any) -> None:
        """Drop what a user thought."""


def _script(call: ModelCall) -> Sequence[Step]:
    """Ask the user, pay twice at a time and once more, then say so."""
    answers = sum(isinstance(message, ToolMessage) for message in call.messages)
    rounds = {0: ("ask_human",), 1: ("pay_a", "pay_b"), 3: ("pay_c",)}
    if answers not in rounds:
        return says("It", " is", " paid", every=0.001)
    deltas = tuple(
        ToolCallDelta(index, f"c{answers}{index}", name, "{}" if answers else _FORM)
        for index, name in enumerate(rounds[answers])
    )
    return [Wait(0.001), Chunk(tool_calls=deltas), Chunk(finish="tool_calls")]


def _payments(log: Path, seconds: float) -> ToolRegistry:
    """Return tools that write their runs to a file which outlives the process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def pay(name: str, _arguments: Any, _context: ToolContext) -> str:
        os.write(descriptor, f"begin {name}\n".encode())
        await asyncio.sleep(seconds)
        os.write(descriptor, f"end {name}\n".encode())
        return "paid"

    def payment(name: str) -> Any:
        async def call(arguments: Any, context: ToolContext) -> str:
            return await pay(name, arguments, context)

        return schema_tool(name, "Pay.", {"type": "object"}, read_only=False)(call)

    return ToolRegistry([payment(name) for name in PAYMENTS])


@dataclass(frozen=True, slots=True)
class _Stores:
    """The stores at a place, as one process opened them."""

    pauses: SqlPauses
    conversations: SqlConversations
    wall: Callable[[], float]

    @classmethod
    @asynccontextmanager
    async def open(cls, place: str, ahead: float = 0.0) -> AsyncIterator[_Stores]:
        """Open them, with a clock that is `ahead` by so many seconds."""

        def wall() -> float:
            return time.time() + ahead

        async with (
            SqlPauses.open_store(place, wall) as pauses,
            SqlConversations.open(place) as conversations,
        ):
            yield cls(pauses, conversations, wall)

    @asynccontextmanager
    async def router(
        self,
        log: Path,
        stack: StackName,
        on_unknown: Callable[[str, str, str], None] = log_unknown,
        pays_s: float = _PAYS_S,
    ) -> AsyncIterator[Router]:
        """Open a router over them; its tools write to a file, and take `pays_s` seconds."""
        flow = FlowSettings(
            enable_langgraph=True,
            langgraph_percent=Decimal(100 if stack == "graph" else 0),
            langgraph_fallback=True,
            route_key="session_id",
            sticky="none",
            options=CompanionOptions(),
        )
        rollout = RolloutSettings(salt="salt")
        settings = Settings(rollout=rollout, flows={COMPANION.name: flow}, version="v")
        live = LivePorts(
            ScriptedModel(_script),
            _payments(log, pays_s),
            InMemoryMemory(),
            self.conversations,
            ProcessLocks(),
        )
        router = assemble_router(
            flows={COMPANION.name: COMPANION},
            stacks=load_stacks(),
            live=live,
            captures=_NoCaptures(),
            settings=lambda: settings,
            wall=self.wall,
            pauses=Pauses(self.pauses, _DAY_S, self.wall, on_unknown),
        )
        try:
            yield router
        finally:
            await router.aclose(5.0)
            await live.tools.aclose()


async def _frames(stream: ServedStream) -> AsyncIterator[bytes]:
    """Yield what a client gets."""
    await stream.open()
    async for piece in stream.pieces():
        for data in piece:
            yield data
    await stream.close_in_grace()


def _told(frames: bytes) -> dict[str, str]:
    """Return the outcome a client was told of each tool, by the tool's name."""
    told = {}
    for event in _events(frames):
        if event.get("tool") in PAYMENTS:
            error = str(event["content"]).removeprefix("Error: ")
            told[event["tool"]] = "ok" if event["ok"] else error
    return told


def _events(frames: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(event.data) for event in SseDecoder().feed(frames)]


async def _ask(stores: _Stores, log: Path, stack: StackName, session: str) -> str:
    """Take a turn that asks the user, and approve; returns the id of the question."""
    async with stores.router(log, stack) as router:
        stream = await router.open(COMPANION, MessageTurn(session_id=session, message="Pay!"))
        frames = b"".join([frame async for frame in _frames(stream)])
        router.close(stream)
        asked = [event["hitl_id"] for event in _events(frames) if "hitl_id" in event]
        if not asked:
            raise NoQuestion(frames)
        await router.respond(COMPANION, asked[0], HumanAnswer("approve", {"sum": "9"}))
        return str(asked[0])


async def _resume(router: Router, hitl_id: str, write: Callable[[bytes], object]) -> None:
    """Resume a pause, and hand over each frame as the client gets it."""
    stream = await router.resume(COMPANION, hitl_id)
    async for frame in _frames(stream):
        write(frame)
    router.close(stream)


@dataclass(frozen=True, slots=True)
class KilledRouter:
    """Which router is killed: `moment` seconds after it began to resume, or its first tool began.

    A tool takes `pays_s` seconds.
    """

    place: str
    folder: Path
    stack: StackName
    moment: float
    in_tool: bool = False
    pays_s: float = _PAYS_S

    def resume(self, hitl_id: str, parent: Connection) -> None:
        """Be the process that is killed."""
        shown = os.open(self.folder / "frames", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        async def run() -> None:
            async with (
                _Stores.open(self.place) as stores,
                stores.router(self.folder / "log", self.stack, pays_s=self.pays_s) as router,
            ):
                parent.send_bytes(_RESUMES)
                await _resume(router, hitl_id, lambda frame: os.write(shown, frame))

        asyncio.run(run())

    async def killed(self, hitl_id: str) -> tuple[float, bytes]:
        """Run it, and kill it; returns the seconds it had, and what its client got."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=self.resume, args=(hitl_id, theirs))
        child.start()
        theirs.close()
        await asyncio.to_thread(ours.recv_bytes)
        began = time.perf_counter()
        while (
            self.in_tool
            and child.is_alive()
            and "begin" not in (self.folder / "log").read_text("utf-8")
        ):
            await asyncio.to_thread(child.join, _LOOKS_S)
        await asyncio.to_thread(child.join, self.moment)
        seconds = time.perf_counter() - began
        child.kill()
        await asyncio.to_thread(child.join)
        return seconds, (self.folder / "frames").read_bytes()


async def _kill_one(stores: _Stores, killed: KilledRouter, then: StackName) -> Kill:
    """Kill one router, and let the next one resume."""
    session, log = uuid4().hex, killed.folder / "log"
    hitl_id = await _ask(stores, log, killed.stack, session)
    seconds, first = await killed.killed(hitl_id)
    reported: list[str] = []
    frames, finished = bytearray(), False
    async with stores.router(log, then, lambda _f, _p, tool: reported.append(tool)) as router:
        try:
            await _resume(router, hitl_id, frames.extend)
        except Problem as problem:
            if problem.code != "finished":
                raise
            finished = True
    turns = await stores.conversations.of(COMPANION.name).history(
        "bench", session, before="", limit=100
    )
    lines = log.read_text("utf-8").splitlines()
    last = _events(first if finished else bytes(frames))[-1:]
    return Kill(
        seconds,
        (killed.stack, then),
        Counter(line.removeprefix("begin ") for line in lines if line.startswith("begin ")),
        Counter(line.removeprefix("end ") for line in lines if line.startswith("end ")),
        _told(first),
        _told(bytes(frames)),
        tuple(reported),
        finished,
        last == [{"status": "completed"}],
        sum(turn.role == "assistant" for turn in turns),
    )


async def kill_in_a_tool(place: str, folder: Path, stack: StackName, then: StackName) -> Kill:
    """Kill a router while the tools of its first round run."""
    async with _Stores.open(place, _LATER_S) as stores:
        return await _kill_one(
            stores, KilledRouter(place, folder, stack, 0.0, in_tool=True, pays_s=_DONE_S), then
        )


async def kills(
    place: str, number: int, advance: Callable[[float], None] = lambda _: None
) -> list[Kill]:
    """Kill so many routers, each at a moment drawn over what its resumption takes."""
    chance, found, whole = random.Random(SEED), list[Kill](), list[float]()
    async with _Stores.open(place, _LATER_S) as stores:
        for position in range(number):
            # Now and then one is left alone: how long a resumption takes, the machine decides.
            alone = position % _ALONE_EVERY == 0 and number > 1
            # Half of them while the tools run: else those are a small part of it.
            in_tool = not alone and chance.choice((True, False))
            most = _TOOLS_S if in_tool else median(whole or [_TYPICAL_S])
            moment = _DONE_S if alone else chance.uniform(0.0, most)
            stack, then = chance.choice(STACKS), chance.choice(STACKS)
            with TemporaryDirectory() as folder:
                killed = KilledRouter(place, Path(folder), stack, moment, in_tool=in_tool)
                found.append(await _kill_one(stores, killed, then))
            if alone:
                whole.append(found[-1].seconds)
            advance((position + 1) / number)
    return found


async def measure(effort: Effort) -> list[BenchRow]:
    """Kill five hundred routers on SQLite, and as many on the PostgreSQL of the environment."""
    number = KILLS if effort.rounds > QUICK.rounds else QUICK_KILLS
    rows: list[BenchRow] = []
    with TemporaryDirectory() as folder:
        places = {"SQLite": f"sqlite:///{folder}/store.sqlite", "PostgreSQL": POSTGRES}
        for name, place in places.items():
            if place:
                done = await kills(place, number, effort.advance)
                rows += _rows(name, done)
    return rows


def _rows(name: str, done: Sequence[Kill]) -> list[BenchRow]:
    how = f"kill -9 at {len(done)} moments drawn over going on from a pause; {name}"
    twice = sum(count > 1 for kill in done for count in kill.runs.values())
    untrue = sum(any(kill.faults) for kill in done)
    unknown = sum("outcome_unknown" in kill.then.values() for kill in done)
    begun = sum(bool(kill.runs) and not kill.finished for kill in done)
    return [
        at_most(f"{name}: tools run twice", twice, "", 0.0, how),
        at_most(f"{name}: kills with an outcome not told, or untrue", untrue, "", 0.0, how),
        reported(f"{name}: kills with an unknown outcome", unknown, "", how),
        reported(f"{name}: exchanges that went on", begun, "", how),
    ]
