"""Takeovers: chats whose graph stack crashes in mid-stream, and what their clients get.

The graph stack of this deployment crashes at an event drawn from the message's id; legacy finishes
the stream. Whole means: one prologue, one end, and the very text of an answer without a crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import aiohttp
import msgspec

import graph_impl
from benchmarks.harness import (
    PATH,
    BenchServer,
    Effort,
    Shares,
    bodies,
    client,
    configuration,
    serving,
)
from benchmarks.rows import BenchRow, at_least, at_most, reported
from contract.errors import CutoverError
from contract.flow import Event, Flow, Request
from contract.ports import Effects
from evidence.intervals import percentile
from loadtests.simulator import Profile, spawn

ROUND: Final = 25
IN_FLIGHT: Final = 10
CRASHES: Final = 40
"""The events, from the first, after which a stream may crash."""
SPEED: Final = Profile(ttft_ms=100, rate=100, tokens=48, limit=48)
_TAKEOVER: Final = b": served-by legacy"
# A breaker would spare a stack that fails so often: every request would fall back at once.
_ALWAYS_CRASHES: Final = """
[stacks]
graph = "benchmarks.takeover:FLOWS"

[breaker]
enabled = false

[flows.chat.options]
yield_interval = 0.0
"""
_WHOLE: Final = "whole"
_NS_PER_MS: Final = 1_000_000


class BenchCrash(CutoverError):
    """The crash of a measured stream."""


class StepEvent(msgspec.Struct, frozen=True):
    """What is read of a chat's event."""

    step: str
    content: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer: its events without comments, and the gap at the takeover, None without one."""

    events: Sequence[StepEvent]
    gap_ns: int | None

    @property
    def text(self) -> str:
        """The whole text; "" if the stream did not begin, succeed and end exactly once."""
        texts = [event.content for event in self.events if event.step == "SUCCESS"]
        steps = [event.step for event in self.events]
        once = steps.count("ACCEPT") == steps.count("END") == len(texts) == 1
        return texts[0] if once and steps[-1] == "END" else ""


def crashing(flow: Flow) -> Flow:
    """Wrap the flow `chat`: it crashes, except for requests whose id ends with `whole`."""

    async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        message_id = request.body.message_id
        left = -1 if message_id.endswith(_WHOLE) else crash_of(message_id)
        events = cast("AsyncGenerator[Event, None]", flow(request, effects))
        async with aclosing(events):
            async for event in events:
                yield event
                left -= 1
                if left == 0:
                    raise BenchCrash

    return wrapped


def crash_of(message_id: str) -> int:
    """Return the number of the event behind which a request crashes: 1 to `CRASHES`."""
    return 1 + blake2b(message_id.encode()).digest()[0] % CRASHES


FLOWS: Mapping[str, Flow] = {**graph_impl.FLOWS, "chat": crashing(graph_impl.FLOWS["chat"])}
"""The graph stack of the measured router."""


async def measure(effort: Effort) -> list[BenchRow]:
    """Send chats that crash at a drawn event, several at a time."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory()))
        provider = opened.enter_context(spawn(SPEED))
        config = folder / "cutover.toml"
        text = configuration(folder, provider, Shares(graph=100.0)) + _ALWAYS_CRASHES
        config.write_text(text, encoding="utf-8")
        options = ("serve", "--config", str(config), "--port", "0")
        router = opened.enter_context(serving("router", "cutover", *options, log=folder / "log"))
        async with client(IN_FLIGHT) as session:
            return rows_of(await _streams(session, router, effort), await _calls(session, provider))


async def _streams(
    session: aiohttp.ClientSession, router: BenchServer, effort: Effort
) -> list[tuple[Stream, Stream]]:
    """Ask for each answer twice, with and without a crash; returns both, in this order."""
    requests, pairs = bodies(), list[tuple[Stream, Stream]]()
    count = effort.rounds * ROUND
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            body = next(requests)
            broken = await _stream(session, router, body)
            body["message_id"] += _WHOLE
            pairs.append((broken, await _stream(session, router, body)))
            effort.advance(len(pairs) / count)

    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(worker())
    return pairs


async def _stream(
    session: aiohttp.ClientSession, router: BenchServer, body: dict[str, Any]
) -> Stream:
    """Read one stream as a client does, with the time between the two events at its takeover."""
    events = list[StepEvent]()
    latest, gap, taken_over = 0, None, False
    async with session.post(router.url + PATH, json=body) as response:
        async for data in response.content:
            if data.startswith(_TAKEOVER):
                taken_over = True
            elif data.startswith(b"data: "):
                now = time.monotonic_ns()
                if taken_over and gap is None:
                    gap = now - latest
                latest = now
                events.append(msgspec.json.decode(data[len(b"data: ") :], type=StepEvent))
    return Stream(events, gap)


async def _calls(session: aiohttp.ClientSession, provider: str) -> int:
    """Count the calls that the provider has answered."""
    async with session.get(f"{provider}/sim/counts") as response:
        return int(msgspec.json.decode(await response.read())["total"])


def rows_of(pairs: Sequence[tuple[Stream, Stream]], calls: int) -> list[BenchRow]:
    """Put streams with and without a crash, and the calls of the model, into rows."""
    crashed = [(broken, whole) for broken, whole in pairs if broken.gap_ns is not None]
    equal = sum(broken.text == whole.text != "" for broken, whole in pairs)
    gaps = sorted(broken.gap_ns / _NS_PER_MS for broken, _ in crashed if broken.gap_ns is not None)
    how = (
        f"{len(pairs)} chats that crash behind one of their first {CRASHES} events, and each again "
        f"without; {IN_FLIGHT} at a time, the model answers after {SPEED.ttft_ms:g} ms and sends "
        f"{SPEED.rate:g} tokens a second"
    )
    count = len(pairs)
    return [
        at_least("takeover.whole", equal, "streams", count, f"the text of no crash; {how}"),
        at_least("takeover.taken_over", len(crashed), "streams", count, how),
        at_most("takeover.model_calls", calls, "calls", 2 * count, f"one an answer; {how}"),
        reported("takeover.gap_p50", percentile(gaps, 0.5), "ms", f"last event to next; {how}"),
        reported("takeover.gap_p95", percentile(gaps, 0.95), "ms", f"last event to next; {how}"),
    ]
