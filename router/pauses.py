"""Pauses: an exchange that waits for a human is stored, and run again from its stored tape."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from cutover.errors import Completed, Pause, Refused, StackFailed
from cutover.flow import Flow, Frame, Texts
from cutover.records import EntryRecord, PauseRecord, TapeRecord, WriteRecord, decode, encode
from cutover.tape import Call, Entry, Exchange, entry_record, load, tape_record
from router.exchange import Served
from router.takeover import Sent

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a continued exchange is its process's own without a sign of life."""


class PauseStore(Protocol):
    """Where pauses are kept; several processes may share it."""

    async def put(self, pause: PauseRecord, /) -> None:
        """Store a pause that is open, and set when it expires."""

    async def answer(self, question: str, answer: Any, /) -> str:
        """Store an answer, once: `stored`, `same`, `different`, `expired` or `unknown`."""

    async def open_question(self, flow: str, session: str, /) -> str | None:
        """Return the question that a session waits for."""

    async def claim(self, question: str, lease_seconds: float, /) -> PauseRecord | str:
        """Claim an answered pause: of two at once, one gets it. Otherwise return why not."""

    async def renew(self, question: str, owner: str, lease_seconds: float, /) -> bool:
        """Prolong a claim."""

    async def release(self, question: str, owner: str, /) -> bool:
        """Let a pause be claimed again."""

    async def finish(self, question: str, owner: str, /) -> bool:
        """End a pause that was continued."""

    async def expire_session(self, flow: str, session: str, /) -> int:
        """Expire what a session waits for: it has gone on with a new turn."""

    async def begin_write(
        self, question: str, owner: str, key: str, name: str, args: bytes, /
    ) -> bool:
        """Note that a write begins; False: it must not be performed."""

    async def end_write(self, question: str, key: str, result: bytes, /) -> None:
        """Note what came of a write."""

    async def journal(self, question: str, /) -> Sequence[WriteRecord]:
        """Return the writes made since the answer."""


_REFUSALS: dict[str, tuple[int, str, str]] = {
    "unknown": (404, "unknown_question", "nothing waits under this id"),
    "unanswered": (409, "unanswered", "the question has not been answered yet"),
    "claimed": (409, "already_continued", "the answer is being acted on already"),
    "done": (409, "already_continued", "the answer has been acted on"),
    "different": (409, "answered_otherwise", "the question has another answer already"),
    "expired": (410, "expired", "the question is no longer open"),
}


def refusal(why: str) -> Refused:
    """Return how a request about a pause is refused."""
    return Refused(*_REFUSALS[why])


@dataclass(slots=True)
class WriteJournal:
    """Stores each write of a continued exchange before and after it is performed."""

    store: PauseStore
    question: str
    owner: str
    count: Counter[str]
    """Writes noted so far, by the hash and the name of the call."""
    _keys: dict[int, str] = field(default_factory=dict)

    async def begin(self, call: Call) -> None:
        """Store that a write begins; raises `StackFailed` where the claim is another's by now."""
        place = f"{call.key.hex()}:{call.name}"
        key = self._keys[id(call)] = f"{place}:{self.count[place]}"
        self.count[place] += 1
        if not await self.store.begin_write(
            self.question, self.owner, key, call.name, call.canonical
        ):
            raise StackFailed(code="claim_lost", blame="world")

    async def finish(self, entry: Entry) -> None:
        """Store how a write ended."""
        key = self._keys.pop(id(entry.call))
        await self.store.end_write(self.question, key, encode(entry_record(entry)))


@dataclass(slots=True)
class Continued:
    """A claimed pause whose exchange runs again; the claim is prolonged until `end`."""

    served: Served
    _store: PauseStore
    _claim: tuple[str, str]
    """The question and the owner."""
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _renewing: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._renewing = asyncio.create_task(self._renew())

    async def end(self) -> None:
        """Finish the pause where its exchange came to an end, or let it be continued again."""
        self._over.set()  # a cancelled statement would cost the store its connection
        await self._renewing
        if isinstance(self.served.outcome, Completed | Pause):
            await self._store.finish(*self._claim)
        else:
            await self._store.release(*self._claim)

    async def _renew(self) -> None:
        """Prolong the claim until the exchange is over; a store that fails is tried again."""
        while not self._over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LEASE_SECONDS / 3)
                return
            try:
                if not await self._store.renew(*self._claim, LEASE_SECONDS):
                    log.warning("question=%s owner=%s has lost its claim", *self._claim)
            except Exception:
                log.exception("question=%s its claim is not prolonged", self._claim[0])


@dataclass(frozen=True, slots=True)
class PausedExchanges:
    """Stores exchanges that pause, and makes them run again."""

    store: PauseStore

    async def pause(self, exchange: Served, question: str, frames: Sequence[Frame]) -> None:
        """Store an exchange whose tape has settled; `frames` ask the question."""
        sent = Sent(list(exchange.sent.marks), Texts(exchange.sent.texts), exchange.sent.last)
        for frame in frames:
            sent.add(frame)
        form = msgspec.json.decode(frames[-1].rest) if frames else None
        session = exchange.flow.key(exchange.request.body)
        if session:  # a process that was killed right here may have asked already
            await self.store.expire_session(exchange.flow.name, session)
        request = {"body": exchange.request.body, "options": exchange.request.options}
        await self.store.put(
            PauseRecord(
                id=question,
                flow=exchange.flow.name,
                session=session,
                path=exchange.request.path,
                stack=exchange.served,
                request=msgspec.json.encode(request),
                tape=encode(tape_record(exchange.tape)),
                question=form,
                frames=msgspec.to_builtins(sent, enc_hook=dict),
            )
        )

    async def resume(self, flow: Flow, body: Any, exchange_id: str) -> Continued:
        """Claim the pause that a request continues and put its exchange together again.

        Raises `Refused`: 404 unknown, 409 unanswered or continued already, 410 expired.
        """
        pausing = flow.pausing
        assert pausing is not None  # noqa: S101 - its path is the caller's
        question = pausing.question_of(body)
        if not question:
            question = await self.store.open_question(flow.name, flow.key(body)) or ""
        if pausing.answer_of is not None:
            stored = await self.store.answer(question, pausing.answer_of(body))
            if stored in _REFUSALS:
                raise refusal(stored)
        pause = await self.store.claim(question, LEASE_SECONDS)
        if isinstance(pause, str):
            raise refusal(pause)
        try:
            served = await self._restored(flow, pause, exchange_id)
        except BaseException:
            await self.store.release(question, pause.owner)
            raise
        return Continued(served, self.store, (question, pause.owner))

    async def _restored(self, flow: Flow, pause: PauseRecord, exchange_id: str) -> Served:
        """Return the exchange of a pause, with its tape and the writes made since the answer."""
        written = await self.store.journal(pause.id)
        noted = Counter(write.key.rpartition(":")[0] for write in written)
        tape = Exchange(journal=WriteJournal(self.store, pause.id, pause.owner, noted))
        load(tape, decode(pause.tape, TapeRecord), [_written(write) for write in written])
        tape.answered = False
        stored_request = msgspec.json.decode(pause.request)
        request = flow.stored(pause.path, stored_request["body"], stored_request["options"])
        served = Served(exchange_id, flow, request, tape, pause.stack)
        served.sent = msgspec.convert(pause.frames, Sent, dec_hook=lambda kind, one: kind(one))
        return served


def _written(write: WriteRecord) -> EntryRecord:
    if write.result is not None:
        return decode(write.result, EntryRecord)
    key = write.key.partition(":")[0]
    return EntryRecord(write.name, key, write.args.decode(), 0, writes=True, end="open")
