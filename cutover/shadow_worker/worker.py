"""A worker: deliveries off the stream, pairs into the captures, what became of them to the router.

An exchange is delivered at least once and written down at most once: who writes claims it first.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final, Literal

import msgspec

from compare.comparison import FlowComparers
from contract.errors import EffectFailed
from contract.records import RunRecord
from cutover.flows import flows_of, rules_at
from cutover.shadow_worker.candidates import Candidates, CannotRun, ShadowPair
from cutover.wiring.stacks import open_stacks, prompt_folders
from effects.loop_time import counted_loop_time
from effects.places import Place
from effects.stores.shadow_stream import Delivery, WorkerStream
from router.capture.writer import CaptureWriter
from router.config.schema import Settings
from router.shadow.workers import HandedExchange, ShadowTold, decode_handed, encode_told

TRIES: Final = 3
"""How often an exchange is begun whose worker ends over it, before it is set aside."""
IDLE_SECONDS: Final = 15.0
"""How much longer than a shadow may take its worker may be silent, before others take over."""
_STORED_SECONDS: Final = (0.25, 1.0)
"""How long pairs wait for others, to be stored in one piece: on a disk, as an object."""
_UNSTORED: Final = 1_024
"""Pairs that may wait for that; beyond, no candidate is run."""
_AGAIN_SECONDS: Final = 1.0
_TELL_SECONDS: Final = 5.0
"""What a worker that stops has to tell how exchanges ended that it could not store."""
_BLOCKED_RATIO: Final = 3
"""A worker whose loop stands still for so many times the seconds of a shadow ends itself."""
_BEAT_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


Stored = Literal["stored", "dropped", "unclear"]
"""What became of a piece: `unclear` where a part of it was dropped, and which is not known."""


class StoredPairs:
    """Writes pairs down, many in one piece; each call returns once its own is stored.

    One piece follows the other: what the captures drop meanwhile is of that one.
    """

    def __init__(self, writer: CaptureWriter, seconds: float) -> None:
        self._writer = writer
        self._seconds = seconds
        self._waiting: list[Sequence[RunRecord]] = []
        self._piece: asyncio.Task[Stored] | None = None
        self._storing = asyncio.Lock()
        self._closed = asyncio.Event()

    async def store(self, runs: Sequence[RunRecord]) -> Stored:
        """Store the runs of an exchange."""
        self._waiting.append(runs)
        if self._piece is None:
            self._piece = asyncio.create_task(self._store_piece(), name="store pairs")
        return await asyncio.shield(self._piece)

    async def aclose(self) -> None:
        """Store what waits, without waiting for more of it, or for a place that refuses it."""
        self._closed.set()
        await self._writer.aclose()

    async def _store_piece(self) -> Stored:
        await self._rest(self._seconds)
        async with self._storing:
            self._piece, waiting, self._waiting = None, self._waiting, []
            before = sum(self._writer.counts.dropped.values())
            for runs in waiting:
                self._writer.put(runs)
            # An object store may refuse for now.
            while not await self._writer.flush() and not self._closed.is_set():
                if self._dropped(before):
                    break
                await self._rest(_AGAIN_SECONDS)
            lost = await self._writer.aclose() if self._closed.is_set() else 0
            lost += self._dropped(before)
            if not lost:
                return "stored"
            return "dropped" if lost >= len(waiting) else "unclear"

    def _dropped(self, before: int) -> int:
        return sum(self._writer.counts.dropped.values()) - before

    async def _rest(self, seconds: float) -> None:
        """Wait, unless it is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()


class ShadowWorker:
    """Takes deliveries, each to be called once the one before has run its candidate.

    `counts` are of how they ended; what follows the candidate's run is left to `ended`.
    """

    def __init__(self, stream: WorkerStream, candidates: Candidates, pairs: StoredPairs) -> None:
        self.counts: Counter[str] = Counter()
        self.stopping = asyncio.Event()
        self._stream = stream
        self._candidates = candidates
        self._pairs = pairs
        self._ending: set[asyncio.Task[None]] = set()
        self._unstored = asyncio.Semaphore(_UNSTORED)

    async def aclose(self, seconds: float) -> None:
        """Wait until whatever was run is stored and told, then let others have the rest.

        What is not stored after so many seconds is told to be dropped.
        """
        self.stopping.set()
        await self.ended(seconds)
        await self._pairs.aclose()
        await self.ended(_TELL_SECONDS)
        with suppress(EffectFailed):  # others wait for it then
            await self._stream.leave()

    async def ended(self, seconds: float | None = None) -> None:
        """Wait until whatever was run is stored and told, so many seconds at most."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=seconds)

    async def take(self, delivery: Delivery) -> None:
        """Run a delivery's candidate; one that fails stays on the stream, and is tried again."""
        if self.stopping.is_set():
            return  # another one's, see `aclose`
        try:
            handed = decode_handed(delivery.message)
        except (msgspec.DecodeError, UnicodeError):
            log.error("what stands on the stream at %s cannot be read: set aside", delivery.id)
            await self._set_aside(delivery)
            return
        with _left_on_stream(handed.runs[0].exchange):
            found = await self._shadowed(delivery, handed.runs)
            if found is not None:
                await self._unstored.acquire()
                task = asyncio.create_task(self._end(delivery, handed, found), name="end shadow")
                self._ending.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._unstored.release()

    async def _end(
        self, delivery: Delivery, handed: HandedExchange, found: ShadowPair | ShadowTold
    ) -> None:
        """Write a pair down, if it is one, and tell the router."""
        with _left_on_stream(handed.runs[0].exchange):
            told = await self._written(found) if isinstance(found, ShadowPair) else found
            if told is not None:
                self.counts[f"{told.state}({told.reason})"] += 1
            await self._done(delivery, handed.router, told)

    async def _shadowed(
        self, delivery: Delivery, runs: tuple[RunRecord, ...]
    ) -> ShadowPair | ShadowTold | None:
        """Run the candidate of an exchange; None where it is no longer this worker's."""
        exchange = runs[0].exchange
        tries = await self._stream.begin(delivery, exchange)
        if not tries:
            return None
        if tries > TRIES:
            log.error("exchange %s ended %d workers: set aside", exchange, TRIES)
            await self._stream.set_aside(delivery)
            return ShadowTold(exchange, "dropped", "set_aside")
        try:
            return await self._candidates.pair(runs)
        except CannotRun as why:
            log.warning("exchange %s: %s", exchange, why)
            return ShadowTold(exchange, "failed", "cannot")

    async def _written(self, pair: ShadowPair) -> ShadowTold | None:
        """Write a pair down, unless another does; None then, as that one tells the router."""
        exchange = pair.shadow.exchange
        if not await self._stream.claim(exchange):
            return None
        stored = await self._pairs.store((*pair.runs, pair.shadow))
        if stored == "dropped":
            return ShadowTold(exchange, "dropped", "captures")
        if stored == "unclear":
            return ShadowTold(exchange, "failed", "captures", captured=True)
        facts = msgspec.structs.replace(pair.shadow, frames=(), plays=())
        return ShadowTold(exchange, "compared", pair.judgement, captured=True, run=facts)

    async def _done(self, delivery: Delivery, router: str, told: ShadowTold | None) -> None:
        """Take a delivery off the stream and tell its end, again until that is done."""
        message = b"" if told is None else encode_told(told)
        while True:
            try:
                await self._stream.done(delivery, router if told else "", message)
            except EffectFailed:
                if self.stopping.is_set():
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    async def _set_aside(self, delivery: Delivery) -> None:
        with suppress(EffectFailed):  # it is delivered again
            await self._stream.set_aside(delivery)
            await self._stream.done(delivery)
            self.counts["set_aside"] += 1


@contextmanager
def _left_on_stream(exchange: str) -> Iterator[None]:
    """Log what keeps an exchange from its end: it is delivered again."""
    try:
        yield
    except EffectFailed as failed:
        log.error("exchange %s stays on the stream: %s", exchange, failed)
    except Exception:
        log.exception("exchange %s stays on the stream", exchange)


@asynccontextmanager
async def opened_worker(
    settings: Settings, environ: Mapping[str, str], stream: WorkerStream
) -> AsyncIterator[ShadowWorker]:
    """Open what a worker needs, as the router of the same configuration does, and close it.

    Raises what a configuration that cannot be used raises.
    """
    rules, flows = rules_at(None, settings), flows_of(settings)
    async with AsyncExitStack() as stack:
        stack.enter_context(counted_loop_time())
        stacks = await open_stacks(settings.stacks, stack, prompts=prompt_folders(settings))
        key = environ.get(settings.captures.pseudonym_key_env, "").encode()
        captures = CaptureWriter(settings.captures, flows, salt=settings.rollout.salt, key=key)
        stack.push_async_callback(captures.aclose)
        candidates = Candidates(
            stacks,
            flows,
            FlowComparers(flows, rules=rules).judge,
            captures,
            lambda _answered, _usage: None,  # it asks no model
            settings.shadow.seconds,
            settings.limits.exchange_bytes,
        )
        await stack.enter_async_context(_ended_if_blocked(_BLOCKED_RATIO * settings.shadow.seconds))
        on_disk = Place(settings.captures.path).local
        pairs = StoredPairs(captures, _STORED_SECONDS[not on_disk])
        yield ShadowWorker(stream, candidates, pairs)


@asynccontextmanager
async def _ended_if_blocked(seconds: float) -> AsyncIterator[None]:
    """End this process, with its stacks in the log, where a candidate blocks its loop for so long.

    The exchange stays on the stream; after a few tries it is set aside.
    """

    async def beat() -> None:
        while True:
            faulthandler.dump_traceback_later(_BEAT_SECONDS + seconds, exit=True)
            await asyncio.sleep(_BEAT_SECONDS)

    beating = asyncio.create_task(beat(), name="shadow worker: beat")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        faulthandler.cancel_dump_traceback_later()
