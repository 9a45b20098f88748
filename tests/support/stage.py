"""A stage for flows: the simulated provider, an open world, both stacks, and serving."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from cutover import Event, Exchange, Request, Stack
from cutover.errors import Outcome, Pause, Refused
from cutover.records import TapeRecord
from cutover.tape import load, tape_record
from effects.pauses import Pauses
from effects.world import World
from harness import root
from harness.config import Settings, StoresTable
from loadtests.simulator import Simulator
from router.driver import Candidate
from router.exchange import Served, finish
from router.pauses import PausedExchanges
from router.serve import NotServed, serve
from router.shadow import Played, play
from rules.flows import FLOWS

STACKS = ("legacy", "graph")
"""The stacks of each flow."""


@dataclass(slots=True)
class Told:
    """What a client was told: the frames, or the error before any; and the exchange itself."""

    frames: list[bytes] = field(default_factory=list)
    error: Exception | None = None
    served: Served | None = None

    @property
    def exchange(self) -> Served:
        """The exchange."""
        assert self.served is not None
        return self.served

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.exchange.outcome

    @property
    def question(self) -> str:
        """The id of the question that the stream waits for."""
        assert isinstance(self.outcome, Pause), (self.outcome, self.events)
        return self.outcome.question

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of the refusal that the client got instead of a stream."""
        assert isinstance(self.error, Refused), self.error
        return self.error.status, self.error.code

    @property
    def calls(self) -> Counter[str]:
        """How often each effect is on the tape, by name."""
        return Counter(one.call.name for one in self.exchange.tape.entries)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The events as a client reads them: the `event:` line ("" without one), and the data."""
        return [event for frame in self.frames if (event := read(frame)) is not None]


def read(frame: bytes) -> tuple[str, Any] | None:
    """Read a frame as a client would; None for a comment."""
    name, data = "", None
    for line in frame.decode().split("\n"):
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            data = msgspec.json.decode(value)
    return None if data is None else (name, data)


def outcome_facts(outcome: Outcome | None) -> tuple[Any, ...]:
    """Return an outcome without its detail, which is for operators alone."""
    return (type(outcome), getattr(outcome, "code", None), getattr(outcome, "blame", None))


@dataclass(slots=True)
class Stage:
    """Serves requests of the flows by either stack."""

    sim: Simulator
    world: World
    pauses: PausedExchanges
    count: int = 0

    def request(
        self, flow: str, body: dict[str, Any], path: str = "", **options: Any
    ) -> Request[Any, Any]:
        """Return a decoded request."""
        spec = FLOWS[flow]
        chosen = path or spec.path
        return Request(
            msgspec.convert(body, spec.requests[chosen]),
            msgspec.convert(options, spec.options),
            chosen,
        )

    def candidate(
        self, flow: str, name: str, change: Callable[[Stack], Stack] | None = None
    ) -> Candidate:
        """Return a stack by name, changed for a test."""
        stack = root.stacks(flow)[name]
        return Candidate(name, change(stack) if change else stack)

    async def tell(
        self,
        flow: str,
        request: Request[Any, Any],
        candidates: Sequence[Candidate | str],
    ) -> Told:
        """Serve a request to its end and settle the exchange."""
        self.count += 1
        chosen = self._chosen(flow, candidates)
        served = Served(f"exchange-{self.count}", FLOWS[flow], request, Exchange(), chosen[0].name)
        return await self._told(served, chosen)

    async def resume(
        self, flow: str, body: dict[str, Any], candidates: Sequence[Candidate | str]
    ) -> Told:
        """Continue a paused exchange; `Refused` becomes `Told.error`."""
        spec = FLOWS[flow]
        assert spec.pausing is not None
        self.count += 1
        chosen = self._chosen(flow, candidates)
        decoded = msgspec.convert(body, spec.pausing.resume_request)
        try:
            continued = await self.pauses.resume(spec, decoded, f"exchange-{self.count}")
        except Exception as error:  # noqa: BLE001 - what the client would be told
            return Told(error=error)
        try:
            return await self._told(continued.served, chosen)
        finally:
            await continued.end()

    def _chosen(self, flow: str, candidates: Sequence[Candidate | str]) -> list[Candidate]:
        return [
            one if isinstance(one, Candidate) else self.candidate(flow, one) for one in candidates
        ]

    async def _told(self, served: Served, chosen: Sequence[Candidate]) -> Told:
        told = Told(served=served)
        frames = serve(served, chosen, self.pauses.pause)
        try:
            async for frame in frames:
                told.frames.append(frame)
        except Exception as error:  # noqa: BLE001 - what the client would be told
            told.error = error.failed if isinstance(error, NotServed) else error  # type: ignore[assignment]
        finally:
            await frames.aclose()
            await finish(served)
        return told

    async def play(
        self, told: Told, name: str, change: Callable[[Stack], Stack] | None = None
    ) -> Played:
        """Play an exchange's tape to a stack, as a shadow gets it."""
        served = told.exchange
        flow = served.flow.name
        return await play(
            served.tape, served.flow, served.request, self.candidate(flow, name, change)
        )

    async def checked(self, told: Told) -> Told:
        """Return what was told, once each stack has played its tape exactly."""
        for name in STACKS:
            played = await self.play(told, name)
            how = [(one.call.name, one.how) for one in played.run.plays]
            assert root.equal_shadow(told.exchange, played), (name, played.outcome, how)
            assert outcome_facts(played.outcome) == outcome_facts(told.outcome), name
        return told

    def reload(self, told: Told) -> Exchange:
        """Return an exchange's tape as it comes back from where it was stored."""
        exchange = Exchange()
        stored: TapeRecord = tape_record(told.exchange.tape)
        load(exchange, stored)
        exchange.finish_recording()
        return exchange

    @property
    def model_calls(self) -> int:
        """How often the model was asked."""
        return sum("/chat/completions" in one.path for one in self.sim.requests)


@asynccontextmanager
async def staged(
    database: str = "sqlite+aiosqlite://", *, chunk_ms: float = 0.0, **settings: Any
) -> AsyncIterator[Stage]:
    """Open a stage of its own, on a database in memory; the model waits before each chunk."""
    with pytest.MonkeyPatch.context() as patch:
        async with Simulator(chunk_ms=chunk_ms) as sim:
            patch.setenv("OPENAI_BASE_URL", sim.base_url)
            patch.setenv("OPENAI_API_KEY", "none")
            chosen = Settings(stores=StoresTable(database=database), **settings)
            async with root.opened(chosen) as world:
                yield Stage(sim, world, PausedExchanges(Pauses(world.database, world.clock)))


class _Forgetful(Pauses):
    """A store whose process is as good as killed before it can note how a write has ended."""

    name = ""
    killed = False

    async def begin_write(
        self, question: str, owner: str, key: str, name: str, args: bytes
    ) -> bool:
        """Note a write that begins, unless the process is dead."""
        return not self.killed and await super().begin_write(question, owner, key, name, args)

    async def end_write(self, question: str, key: str, result: bytes) -> None:
        """Note what came of a write; die at the first of the name."""
        self.killed = self.killed or f":{self.name}:" in key
        if self.killed:
            raise OSError(5, "Input/output error")
        await super().end_write(question, key, result)


def forgetting(stage: Stage, name: str) -> PausedExchanges:
    """Return pauses whose process dies before it notes how the first write of a name has ended."""
    table = _Forgetful(stage.world.database, stage.world.clock)
    table.name = name
    return PausedExchanges(table)


def breaking(at: int, how: str) -> Callable[[Stack], Stack]:
    """Return what makes a stack break before its event number `at`, in one of six ways."""

    def change(stack: Stack) -> Stack:
        async def broken(request: Request[Any, Any]) -> AsyncIterator[Event]:
            count = 0
            async with aclosing(stack(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    if count == at:
                        await _break(how)
                        yield _Wrong()
                    count += 1
                    yield event

        return broken

    return change


HOWS = ("exception", "cancellation", "hang", "swallows", "exit", "wrong_event")
"""How a stack may break."""


class _Wrong(msgspec.Struct, frozen=True, tag="WRONG", tag_field="step"):
    """An event that no grammar allows."""


async def _break(how: str) -> None:
    match how:
        case "exception":
            message = "broken by a test"
            raise ZeroDivisionError(message)
        case "cancellation":
            raise asyncio.CancelledError
        case "exit":
            raise SystemExit(3)
        case "hang":
            await asyncio.Event().wait()
        case "swallows":
            for _ in range(2):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        case _:
            return
