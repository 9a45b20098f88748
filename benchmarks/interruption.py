"""Interruptions of streams on both stacks: clients that disconnect, processes that stand still.

How soon a provider call ends after its client disconnects: the client stamps the moment it drops
its connection, the simulated provider the moment it stops answering; both by this machine's one
monotonic clock, in processes of their own. And what becomes of healthy streams while the router,
or the provider, is stopped: no takeover, no open breaker, no failure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.harness import (
    CHATS,
    COMPANIONS,
    PATH,
    SESSIONS,
    BenchServer,
    Effort,
    Shares,
    answered,
    configuration,
    serving,
)
from benchmarks.rows import BenchRow, at_least, at_most, reported
from benchmarks.shadows.alongside import ShadowLedger, ledger
from contract.errors import CutoverError
from evidence.intervals import percentile
from loadtests.arrivals import Constant
from loadtests.rows import LoadRow
from loadtests.simulator import Profile, Record, spawn
from loadtests.simulator.profile import to_arguments

STACKS = {"legacy": 0.0, "graph": 100.0}
WORKERS = 4
LEAVES_A_ROUND = 20
TARGET_MS = 100.0
PATIENCE_S = 10.0
# Far longer than any client reads.
ENDLESS = Profile(rate=100, tokens=10_000, limit=10_000)


class NeverSettled(CutoverError):
    """Something is still to come, or to end, long after it should have."""

    def __init__(self, what: str, left: int, seconds: float) -> None:
        super().__init__(f"{what}: {left} after {seconds:g} seconds, and none may be left")


class _Counts(msgspec.Struct):
    in_flight: int


class _Page(msgspec.Struct):
    records: list[Record]
    next: int


async def measure(effort: Effort) -> list[BenchRow]:
    """Disconnect in mid-stream, several at a time, and measure when the provider stops."""
    rows: list[BenchRow] = []
    for number, (stack, graph) in enumerate(STACKS.items()):
        waits = await _stack(stack, graph, effort.rounds * LEAVES_A_ROUND)
        rows += rows_of(stack, waits)
        effort.advance((number + 1) / len(STACKS))
    return rows


def rows_of(stack: str, waits: Sequence[float]) -> list[BenchRow]:
    """Put the milliseconds of one stack into rows."""
    ordered = sorted(waits)
    how = (
        f"milliseconds from the client's close to the provider's stop, {len(ordered)} clients "
        f"that left after the first text, {WORKERS} at a time; provider, router and client in "
        "processes of their own"
    )
    name = f"disconnect.{stack}"
    return [
        at_most(f"{name}.p95", percentile(ordered, 0.95), "ms", TARGET_MS, how),
        reported(f"{name}.p50", percentile(ordered, 0.5), "ms", how),
        reported(f"{name}.worst", ordered[-1], "ms", how),
    ]


async def _stack(stack: str, graph: float, leaves: int) -> list[float]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        provider = opened.enter_context(spawn(ENDLESS))
        config = folder / "cutover.toml"
        text = configuration(folder, provider, Shares(graph=graph)) + _models()
        config.write_text(text, encoding="utf-8")
        options = ("serve", "--config", str(config), "--port", "0")
        router = opened.enter_context(serving(stack, "cutover", *options, log=folder / "log"))
        async with aiohttp.ClientSession() as session:
            left = await _leave(session, router, leaves)
            running = partial(_running, session, provider)
            await _settled(running, f"calls that {stack} did not cancel", PATIENCE_S)
            return waited(left, await _records(session, provider))


def _models() -> str:
    """Configure a model per worker, which tells the provider's records apart."""
    return "".join(
        f'\n[models.{_model(worker)}]\nprovider = "simulated"\n' for worker in range(WORKERS)
    )


def _model(worker: int) -> str:
    return f"sim-worker-{worker}"


async def _leave(
    session: aiohttp.ClientSession, router: BenchServer, leaves: int
) -> dict[str, list[int]]:
    """Disconnect so often; return the moments by model, in order."""
    left: dict[str, list[int]] = defaultdict(list)

    async def worker(model: str) -> None:
        for number in range(leaves // WORKERS):
            body = {
                "message_id": f"{model}-{number}",
                "content": "Tell me a very long story.",
                "model_config": {"model_id": model},
            }
            async with session.post(router.url + PATH, json=body) as response:
                while b'"SEND"' not in await response.content.readline():
                    pass
                left[model].append(time.monotonic_ns())
                response.close()

    async with asyncio.TaskGroup() as workers:
        for number in range(WORKERS):
            workers.create_task(worker(_model(number)))
    return left


async def _settled(left: Callable[[], Awaitable[int]], what: str, seconds: float) -> None:
    """Wait until nothing is left; raises `NeverSettled`."""
    until = time.monotonic() + seconds
    while count := await left():
        if time.monotonic() > until:
            raise NeverSettled(what, count, seconds)
        await asyncio.sleep(_POLL_S)


async def _running(session: aiohttp.ClientSession, provider: str) -> int:
    """Count the provider's open calls."""
    async with session.get(f"{provider}/sim/counts") as response:
        return msgspec.json.decode(await response.read(), type=_Counts).in_flight


async def _records(session: aiohttp.ClientSession, provider: str) -> list[Record]:
    records: list[Record] = []
    since = 0
    while True:
        async with session.get(f"{provider}/sim/requests?since={since}") as response:
            page = msgspec.json.decode(await response.read(), type=_Page)
        if not page.records:
            return records
        records += page.records
        since = page.next


def waited(left: Mapping[str, Sequence[int]], records: Sequence[Record]) -> list[float]:
    """Pair each disconnect with its model call; return the milliseconds between the two."""
    ended: dict[str, list[int]] = defaultdict(list)
    for record in records:
        ended[record.model].append(record.ended_ns)
    return [
        max(end - moment, 0) / 1_000_000
        for model, moments in left.items()
        for moment, end in zip(moments, ended[model], strict=True)
    ]


FLOWS: Final = (CHATS, SESSIONS, COMPANIONS)
STREAMS: Final = 120
"""Open at once, shared equally by the flows."""
ARRIVE_S: Final = 1.0
SPOKEN_S: Final = 1.0
STOPPED_S: Final = 12.0
"""Longer than the stall limit, which is ten seconds."""
QUIET_S: Final = 8.0
"""Shorter than it: only the provider is silent, and within its limits, too."""
# They begin before the stop and end after it, also where a busy machine opens them late.
LONG: Final = Profile(rate=10, tokens=250, limit=250)
_OPENED_S: Final = 20.0
_SETTLE_S: Final = 90.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Stop:
    """Which process stands still for so many seconds, and how the streams are served meanwhile."""

    stopped: Literal["router", "provider"]
    seconds: float
    stack: str
    shadow: Literal["", "replay", "tail"] = ""

    @property
    def name(self) -> str:
        """The stop in the names of rows."""
        shadow = f"_{self.shadow}" if self.shadow else ""
        return f"stopped.{self.stopped}.{self.stack}{shadow}"


STOPS: Final = tuple(
    Stop("router", STOPPED_S, stack, shadow)
    for stack in STACKS
    for shadow in ("", "replay", "tail")
) + tuple(Stop("provider", QUIET_S, stack) for stack in STACKS)


@dataclass(frozen=True, slots=True)
class StopEffects:
    """What became of the streams; `unhealthy`: attempts of providers that did not complete."""

    rows: Sequence[LoadRow]
    fallbacks: float
    breakers: float
    unhealthy: float
    ledger: ShadowLedger

    def ended(self, ending: str) -> int:
        """Count the streams that ended in this way."""
        return sum(row.ending == ending for row in self.rows)


async def measure_stops(effort: Effort) -> list[BenchRow]:
    """Stop a process in mid-stream, for each of `STOPS`; further rounds would show the same."""
    rows: list[BenchRow] = []
    for number, stop in enumerate(STOPS):
        rows += stop_rows(stop, await effects_of(stop))
        effort.advance((number + 1) / len(STOPS))
    return rows


def stop_rows(stop: Stop, found: StopEffects) -> list[BenchRow]:
    """Put what became of the streams of one stop into rows."""
    how = (
        f"{len(found.rows)} streams of three flows in mid-stream on {stop.stack!r}, "
        f"shadow {stop.shadow or 'off'}; SIGSTOP to the {stop.stopped}, SIGCONT after "
        f"{stop.seconds:g} s"
    )
    rows = [
        at_least(f"{stop.name}.complete", found.ended("complete"), "streams", len(found.rows), how),
        at_most(f"{stop.name}.failed", found.ended("error"), "streams", 0, how),
        at_most(f"{stop.name}.takeovers", found.fallbacks, "", 0, f"fallbacks, too; {how}"),
        at_most(f"{stop.name}.breakers_open", found.breakers, "", 0, f"of stacks, models; {how}"),
        at_most(f"{stop.name}.rescues", found.unhealthy, "", 0, f"failed model attempts; {how}"),
    ]
    if stop.shadow:
        compared = found.ledger.count("compared")
        rows.append(reported(f"{stop.name}.compared", compared, "shadows", how))
        lost = found.ledger.count("failed") + found.ledger.count("cancelled")
        rows.append(at_most(f"{stop.name}.shadows_lost", lost, "shadows", 0, how))
    return rows


async def effects_of(stop: Stop) -> StopEffects:
    """Open streams, stop a process when all of them are in mid-stream, let it go on."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        options = to_arguments(LONG)
        provider = opened.enter_context(
            serving("provider", "loadtests.simulator", *options, log=folder / "provider.log")
        )
        shares = Shares(STACKS[stop.stack], 100.0 if stop.shadow else 0.0)
        text = configuration(folder, provider.url, shares) + "\n[metrics]\nenabled = true\n"
        if stop.shadow:
            text += f'\n[shadow]\nmode = "{stop.shadow}"\n'
        config = folder / "cutover.toml"
        config.write_text(text, encoding="utf-8")
        options = ["serve", "--config", str(config), "--port", "0"]
        router = opened.enter_context(
            serving(stop.stack, "cutover", *options, log=folder / "router.log")
        )
        each = Constant(STREAMS / len(FLOWS) / ARRIVE_S)
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(answered(router, each, ARRIVE_S, flow)) for flow in FLOWS]
            await _in_flight(session, provider.url)
            await asyncio.sleep(SPOKEN_S)
            pid = router.pid if stop.stopped == "router" else provider.pid
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(stop.seconds)
            finally:
                os.kill(pid, signal.SIGCONT)
            rows = [row for answers in await asyncio.gather(*asking) for row in answers]
            return await _effects(session, router, stop, rows)


async def _in_flight(session: aiohttp.ClientSession, provider: str) -> None:
    """Wait until all streams have called the provider; raises `NeverSettled`."""

    async def unopened() -> int:
        return max(0, STREAMS - await _running(session, provider))

    await _settled(unopened, "streams without a call of the provider", _OPENED_S)


async def _effects(
    session: aiohttp.ClientSession, router: BenchServer, stop: Stop, rows: Sequence[LoadRow]
) -> StopEffects:
    """Wait for the shadows, and read what the router counted."""

    async def unsettled() -> int:
        return (await ledger(session, router)).open

    await _settled(unsettled, f"open shadows of {stop.name}", _SETTLE_S)
    shadows = await ledger(session, router)
    async with session.get(f"{router.url}/metrics") as response:
        samples = [
            sample
            for family in text_string_to_metric_families(await response.text())
            for sample in family.samples
        ]
    fallbacks = breakers = unhealthy = 0.0
    for sample in samples:
        match sample.name:
            case "cutover_fallbacks_total":
                fallbacks += sample.value
            case "cutover_breaker_state" | "cutover_provider_breaker_state":
                breakers += sample.value > 0
            case "cutover_model_attempts_total" if sample.labels["outcome"] != "completed":
                unhealthy += sample.value
            case _:
                pass
    return StopEffects(rows, fallbacks, breakers, unhealthy, shadows)
