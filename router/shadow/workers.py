"""Shadows on other processes: a finished exchange is handed over, and a worker tells how it ended.

The router waits for neither: it holds as many exchanges as [shadow] queue says, drops what comes
beyond, and takes an exchange back that no worker tells of in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from contract.errors import EffectFailed
from contract.records import RunRecord, decode_run, encode_run
from router.config.schema import ShadowSettings
from router.context import LedgerState

log = logging.getLogger(__name__)

_DOUBT_SECONDS = 30.0
"""How long to wait for a stream that can say whether it has taken an exchange."""
_REST_SECONDS = 1.0
"""How long to leave a stream alone that does not answer."""


class HandedExchange(NamedTuple):
    """The served runs of an exchange, nothing redacted, and the router that is to be told."""

    router: str
    runs: tuple[RunRecord, ...]


class ShadowTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an exchange ended, as its worker tells it.

    `captured`: its runs are in the captures already, or will be, by the worker. `run` is the record
    of the shadow without what is in the captures alone.
    """

    exchange: str
    state: LedgerState
    reason: str = ""
    captured: bool = False
    run: RunRecord | None = None


_told = msgspec.json.Decoder(ShadowTold)
encode_told = msgspec.json.Encoder().encode


class ShadowStream(Protocol):
    """Where exchanges wait for workers, each in order; every method may raise `EffectFailed`."""

    router: str
    """The name under which this router is told."""

    async def send(self, message: bytes) -> str:
        """Put an exchange on the stream; returns its place there."""
        ...

    async def told(self) -> Sequence[bytes]:
        """Wait for a moment; return what workers have told this router since the last call."""
        ...

    async def take_back(self, places: Mapping[str, str]) -> frozenset[str]:
        """Take exchanges off the stream; returns those that no worker has claimed, nor will.

        `places` are where they stand, "" where that is not known.
        """
        ...


def encode_handed(router: str, records: Sequence[RunRecord]) -> bytes:
    """Write an exchange as lines: the router, then the runs as they stand in captures."""
    lines = [router.encode() + b"\n", *map(encode_run, records)]
    return b"".join(lines)


def decode_handed(message: bytes) -> HandedExchange:
    """Read an exchange; raises `msgspec.DecodeError` or `UnicodeError` where it is none."""
    router, *lines = message.removesuffix(b"\n").split(b"\n")
    runs = tuple(map(decode_run, lines or [b""]))
    return HandedExchange(router.decode(errors="replace"), runs)


@dataclass(slots=True)
class _Handed:
    """An exchange that was handed over: since when, and where it stands on the stream.

    `doubtful_since` is when sending it failed, which does not say that it was not sent.
    """

    since: float
    place: str = ""
    sending: bool = False
    doubtful_since: float | None = None
    taken: bool = False


class ShadowWorkers:
    """Hands exchanges to workers; `on_told` is called once for each, by whatever it ends.

    `settings` returns those in force now; `monotonic` is in seconds.
    """

    def __init__(
        self,
        stream: ShadowStream,
        settings: Callable[[], ShadowSettings],
        monotonic: Callable[[], float],
    ) -> None:
        self.on_told: Callable[[ShadowTold], object] = lambda _: None
        self._stream = stream
        self._settings = settings
        self._monotonic = monotonic
        self._most = settings().queue
        self._out: dict[str, _Handed] = {}
        """The exchanges that were handed over, the oldest first."""
        self._outbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._empty = asyncio.Event()
        self._empty.set()
        self._faults: dict[str, str] = {}
        """Why exchanges cannot be sent, and why workers cannot be heard."""

    @property
    def fault(self) -> str | None:
        """Why workers cannot be reached; None where they can."""
        return next(iter(self._faults.values()), None)

    @property
    def waiting(self) -> int:
        """How many exchanges are with workers, or on their way there."""
        return len(self._out)

    @property
    def full(self) -> bool:
        """Whether no more may be handed over."""
        return len(self._out) >= self._most

    @property
    def lag(self) -> float:
        """Seconds since the oldest of them was handed over; 0 where there is none."""
        first = next(iter(self._out.values()), None)
        return 0.0 if first is None else self._monotonic() - first.since

    def send(self, exchange: str, records: Sequence[RunRecord]) -> None:
        """Hand an exchange over."""
        message = encode_handed(self._stream.router, records)
        self._out[exchange] = _Handed(self._monotonic())
        self._empty.clear()
        self._outbox.put_nowait((exchange, message))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Return a block in which exchanges are sent, and workers heard."""
        tasks = [
            asyncio.create_task(self._send_all(), name="shadow workers: send"),
            asyncio.create_task(self._hear_all(), name="shadow workers: hear"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self, seconds: float) -> None:
        """Wait for what workers tell, for so many seconds; take back the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        await self._take_back(tuple(self._out), "stopping")
        with suppress(TimeoutError):  # what is being taken back already
            async with asyncio.timeout(_DOUBT_SECONDS):
                await self._empty.wait()

    async def _send_all(self) -> None:
        while True:
            exchange, message = await self._outbox.get()
            if (handed := self._out.get(exchange)) is None:  # it was taken back meanwhile
                continue
            handed.sending = True
            try:
                handed.place = await self._stream.send(message)
            except EffectFailed as failed:
                self._failed("sent", failed)
                handed.doubtful_since = self._monotonic()
                while not self._outbox.empty():  # each would wait as long
                    exchange, _ = self._outbox.get_nowait()
                    self._end(ShadowTold(exchange, "dropped", "broker"))
            else:
                self._faults.pop("sent", None)

    async def _hear_all(self) -> None:
        while True:
            try:
                messages = await self._stream.told()
                self._faults.pop("heard", None)
            except EffectFailed as failed:
                self._failed("heard", failed)
                await asyncio.sleep(_REST_SECONDS)
                messages = ()
            for message in messages:
                try:
                    self._end(_told.decode(message))
                except msgspec.DecodeError:
                    log.error("a worker of shadows told what cannot be read: of which version?")
            await self._look_after()

    async def _look_after(self) -> None:
        """Take back what was perhaps never sent, and what no worker has told of in time."""
        now = self._monotonic()
        doubtful = [name for name, one in self._out.items() if one.doubtful_since is not None]
        if doubtful and ("heard" not in self._faults or self._long_doubtful(now)):
            await self._take_back(doubtful, "broker")
        late = now - self._settings().worker_seconds
        overdue = [name for name, one in self._out.items() if one.since <= late]
        await self._take_back(overdue, "unanswered")

    def _long_doubtful(self, now: float) -> bool:
        since = (one.doubtful_since for one in self._out.values())
        return any(one is not None and now - one >= _DOUBT_SECONDS for one in since)

    async def _take_back(self, exchanges: Sequence[str], reason: str) -> None:
        """End exchanges of which no worker has told, but for those that one is about to."""
        # One that is being taken back is not asked for again: the answer would be the first one's.
        taken = {name: self._out[name] for name in exchanges if not self._out[name].taken}
        if not taken:
            return
        for one in taken.values():
            one.taken = True
        places = {name: one.place for name, one in taken.items() if one.sending}
        try:
            free = await self._stream.take_back(places) if places else frozenset[str]()
        except EffectFailed as failed:
            self._failed("taken back", failed)
            free = frozenset(places)  # twice in the captures it counts once
        else:
            self._faults.pop("taken back", None)
        for name in taken:
            captured = name in places and name not in free
            self._end(ShadowTold(name, "failed" if captured else "dropped", reason, captured))

    def _end(self, told: ShadowTold) -> None:
        if self._out.pop(told.exchange, None) is not None:
            if not self._out:
                self._empty.set()
            self.on_told(told)

    def _failed(self, what: str, failed: EffectFailed) -> None:
        if not self._faults:
            log.error("workers of shadows cannot be reached: %s", failed)
        self._faults[what] = f"nothing can be {what}: {failed}"
