"""A whole router around a scripted world: requests in, frames, records and ledger out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from contract.errors import Refused
from contract.flow import Body, Flow, FlowSpec
from contract.ports import Effects, Model
from contract.records import FeedbackRecord, RunRecord
from contract.wire.sse import is_comment
from cutover.wiring.router import assemble_router
from effects.stores import MemoryPins
from effects.tape import Signal
from effects.testing import World
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.capture.redaction import ExchangeValues
from router.config.schema import (
    FlowSettings,
    LimitSettings,
    RolloutSettings,
    Settings,
    ShadowSettings,
)
from router.context import ExchangeContext, LedgerLine, Observer
from router.http.connection import BodyMemory
from router.router import Router
from router.routing.flags import FlagEvaluator
from router.routing.pins import Pins
from router.serving.stack import LocalStack
from router.serving.stream import NotServed, ServedStream
from router.stack import StackName
from tests.support.flow_runs import FOREVER


class Situation(Protocol):
    """What is asked of which flow, with which options, in which world."""

    @property
    def spec(self) -> FlowSpec:
        """The flow of the request."""
        ...

    @property
    def body(self) -> Any:
        """The request."""
        ...

    @property
    def options(self) -> Any:
        """The flow's options."""
        ...

    def world(self) -> World:
        """Build the world."""
        ...


STALL = 10.0
QA_KEY = b"the key of these tests"
WALL = 1_790_000_000.0


@dataclass
class CapturedCounts:
    """How much was handed over."""

    exchanges: int = 0


@dataclass
class Captured:
    """What the router handed to the captures; `puts` counts how many times it did.

    `batches` are the lines of each exchange, `runs` all of them in the order in which they came;
    `answer` is what it is told of them.
    """

    batches: list[list[RunRecord]] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    feedbacks: list[FeedbackRecord] = field(default_factory=list)
    counts: CapturedCounts = field(default_factory=CapturedCounts)
    changed: Signal = field(default_factory=Signal)
    puts: int = 0
    answer: str = "queued"
    values: dict[str, ExchangeValues | None] = field(default_factory=dict)

    def put(self, records: Sequence[RunRecord], values: ExchangeValues | None = None) -> str:
        """Take the lines of one exchange; those of its second run may come later."""
        self.counts.exchanges += 1
        self.puts += 1
        self.values[records[0].exchange] = values
        self.batches.append(list(records))
        self.runs += records
        self.changed.wake()
        return self.answer

    def put_later(self, record: RunRecord, values: ExchangeValues) -> None:
        """Take the line of a second run."""
        assert values is self.values[record.exchange]
        self.puts += 1
        (batch,) = [one for one in self.batches if one[0].exchange == record.exchange]
        batch.append(record)
        self.runs.append(record)
        self.changed.wake()

    def feedback(self, record: FeedbackRecord) -> None:
        """Take what a user thought."""
        self.feedbacks.append(record)


@dataclass(frozen=True)
class Served:
    """What one client saw: frames with their moments, or a status and a code."""

    stream: ServedStream
    frames: list[tuple[float, bytes]]
    status: int = 200
    code: str = ""

    @property
    def exchange(self) -> str:
        """The id of the exchange."""
        return self.stream.context.exchange

    @property
    def wire(self) -> list[bytes]:
        """The frames without comments."""
        return [data for _, data in self.frames if not is_comment(data)]

    @property
    def comments(self) -> list[bytes]:
        """The comment frames."""
        return [data for _, data in self.frames if is_comment(data)]


@dataclass(frozen=True)
class Rules:
    """How a house is run; `assigned` is the stack everybody is assigned to."""

    assigned: StackName = "legacy"
    stand_in: bool = True
    shadow: float = 0.0
    mode: Literal["replay", "tail", "live"] = "replay"
    history: Literal["served", "own"] = "served"
    tokens: int = 0
    asks: Model | None = None
    queue: int = 256
    shadow_seconds: float = 60.0
    exchange_bytes: int = 4 << 20
    stall_seconds: float = STALL
    limits: Mapping[str, Any] = field(default_factory=dict)
    flow: Mapping[str, Any] = field(default_factory=dict)
    pins: Pins | None = None
    observers: Sequence[Observer] = ()
    flags: FlagEvaluator | None = None

    def settings(self, case: Situation) -> Settings:
        """Write them as a configuration."""
        flow = {
            "enable_langgraph": True,
            "langgraph_percent": Decimal(100 if self.assigned == "graph" else 0),
            "langgraph_fallback": self.stand_in,
            "fallback_to_graph": self.stand_in,
            "shadow_percent": Decimal(str(self.shadow)),
            "route_key": next(iter(case.spec.route_keys)),
            "options": case.options,
            **self.flow,
        }
        return Settings(
            rollout=RolloutSettings(salt="a salt"),
            flows={case.spec.name: FlowSettings(**flow)},
            limits=LimitSettings(
                stall_seconds=self.stall_seconds,
                exchange_bytes=self.exchange_bytes,
                **self.limits,
            ),
            shadow=ShadowSettings(
                mode=self.mode,
                history=self.history,
                queue=self.queue,
                seconds=self.shadow_seconds,
                tokens_per_day=self.tokens,
            ),
            version="v-1",
        )


class House:
    """One router, one world; leave it and it is closed, whatever still runs awaited."""

    def __init__(
        self,
        case: Situation,
        rules: Rules | None = None,
        *,
        legacy: Flow | None = None,
        graph: Flow | None = None,
        price: Callable[[str, Any], float | None] = lambda _answered, _usage: None,
    ) -> None:
        self.case = case
        self.world: World = case.world()
        time = asyncio.get_running_loop().time
        self.captured = Captured()
        rules = rules or Rules()
        self.spec = spec = case.spec
        self.settings = rules.settings(case)
        self.contexts = Contexts()
        self.parts: dict[str, Any] = {
            "flows": {spec.name: spec},
            "stacks": {
                "legacy": LocalStack("legacy", {spec.name: legacy or LEGACY[spec.name]}, "l1"),
                "graph": LocalStack("graph", {spec.name: graph or GRAPH[spec.name]}, "g1"),
            },
            "live": self._live,
            "captures": self.captured,
            "settings": lambda: self.settings,
            "shadow_model": rules.asks,
            "qa_key": QA_KEY,
            "price": price,
            "observers": [*rules.observers, self.contexts],
            "monotonic": time,
            "wall": lambda: WALL,
            "flags": rules.flags,
            "pins": rules.pins or Pins(MemoryPins(time), time, time),
        }
        self.router = assemble_router(**self.parts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.router.aclose(FOREVER)

    @property
    def runs(self) -> list[RunRecord]:
        """All lines handed to the captures."""
        return self.captured.runs

    @property
    def states(self) -> dict[str, int]:
        """The ledger: how many exchanges per `state(reason)`."""
        return {_named(line): number for line, number in self.router.ledger.counts.items()}

    async def ask(self, body: Body | None = None, **how: Any) -> Served:
        """Be one client to the end, then wait until the exchange is settled and written."""
        served = await self.client(body or self.case.body, **how)
        await self.contexts.settled_in(self.router, served.exchange)
        return served

    async def client(
        self,
        body: Body,
        *,
        leaves_after: int | None = None,
        lingers: float = 0.0,
        pause: float = 0.0,
        qa: str | None = None,
    ) -> Served:
        """Do what the endpoint does; leave `lingers` seconds after so many frames.

        `pause` is how many seconds the client takes for each frame.
        """
        stream = await self.router.open(self.spec, body, qa)
        try:
            return await self._read(stream, leaves_after, lingers, pause)
        finally:
            self.router.close(stream)

    async def _read(
        self, stream: ServedStream, leaves_after: int | None, lingers: float, pause: float
    ) -> Served:
        loop = asyncio.get_running_loop()
        if leaves_after == 0:
            loop.call_later(lingers, stream.disconnect)
        frames: list[tuple[float, bytes]] = []
        try:
            await stream.open()
        except Refused as refused:
            return Served(stream, frames, refused.status, refused.code)
        except NotServed as unserved:
            return Served(stream, frames, unserved.status, unserved.code)
        async for data in each(stream):
            frames.append((loop.time(), data))
            if len(frames) == leaves_after:
                if not lingers:
                    stream.disconnect()
                    break
                loop.call_later(lingers, stream.disconnect)
            await asyncio.sleep(pause)
        return Served(stream, frames)

    def _live(self, _flow: str, _: Body) -> Effects:
        return self.world.live()


def house_with(case: Situation, rules: Rules, flow: Flow) -> House:
    """Build a house whose assigned stack has a flow of its own."""
    flows: dict[str, Any] = {rules.assigned: flow}
    return House(case, rules, **flows)


def memory(made: House) -> BodyMemory:
    """Make the memory of an endpoint's bodies."""
    return BodyMemory(made.router.settings)


async def each(stream: ServedStream) -> AsyncIterator[bytes]:
    """Return what goes to the client frame by frame."""
    async for piece in stream.pieces():
        for data in piece:
            yield data


class Contexts(dict[str, ExchangeContext]):
    """Observes finished exchanges, by id; `settlements` wakes when one is settled."""

    def __init__(self) -> None:
        super().__init__()
        self.settlements = Signal()
        self.lines: dict[str, LedgerLine] = {}

    async def settled_in(self, router: Router, exchange: str) -> None:
        """Wait until an exchange is settled, and all of it is written."""
        while router.runs(exchange) is not None:
            await self.settlements.wait()

    def refused(self, flow: str, status: int, code: str) -> None:
        """Ignore a refusal."""

    def finished(self, context: ExchangeContext) -> None:
        """Note what is known of an exchange."""
        self[context.exchange] = context

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Wake what waits for the last record of an exchange, which is about to be written."""
        self.lines[context.exchange] = line
        self.settlements.wake()


def _named(line: LedgerLine) -> str:
    return f"{line.state}({line.reason})" if line.reason else line.state
