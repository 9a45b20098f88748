"""Pause and resume: a human's live port over a store of pauses, and the tape that goes on.

A paused exchange is a tape that ends in a question. What is stored is the request and that tape;
to resume is to add the answer to the tape and to run the flow again on it, on either stack.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from contract.errors import EffectFailed, Fault, Paused
from contract.human import AwaitAnswer, HumanAnswer, OpenedQuestion, OpenQuestion
from contract.operations import HUMAN_ANSWER, HUMAN_OPEN, OPERATIONS
from contract.records import EntryRecord, RequestRecord, encode_readable, raw_values
from effects.stores import Pause, PauseStore
from effects.tape.tape import Entry, Tape, canonical

VERSION: Final = 3
"""Of a stored tape with calls that have begun: code that reads 2 alone would run them again."""
_ENDED_VERSION: Final = 2
"""Of one without; 1, which had no number, ended in its question."""
_OVERFLOWED: Final = b'{"v":0,"overflowed":true}'
"""Stored in the place of a tape that has outgrown its bounds: what was done is not known."""
_LEASE: Final = 60.0
"""Seconds for which an answer that came at once is claimed; it is finished right after."""


class PausedTape(msgspec.Struct, frozen=True):
    """What a pause stores as its tape: the request, and every entry so far.

    The last entry is the unanswered `human.answer`, open, once the flow waits for it. The tape of
    a resumed exchange that was interrupted holds the answer in its place, and what came after; an
    open call of a tool or worker is one that had begun, and may not be made again.
    """

    request: RequestRecord
    entries: tuple[EntryRecord, ...]
    v: int = 1


class _Numbered(msgspec.Struct):
    v: int = 1


class _Stamped(msgspec.Struct):
    at: int = 0


@dataclass(frozen=True, slots=True)
class PauseOrigin:
    """What a pause stores of its exchange; `seconds` is how long it waits for an answer.

    `user_id` is the user the exchange belongs to, by which erasure finds it.
    """

    exchange: str
    flow: str
    stack: str
    request: RequestRecord
    seconds: float = 86_400.0
    user_id: str | None = None


class PausingHuman:
    """The human port of one exchange: its question waits in a store, together with its tape.

    `wall` returns seconds since the Unix epoch.
    """

    def __init__(
        self,
        store: PauseStore,
        tape: Tape,
        origin: PauseOrigin,
        *,
        wall: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._store = store
        self._tape = tape
        self._origin = origin
        self._wall = wall
        self._new_id = new_id
        self._open = ""
        self._stored: Pause | None = None
        self._waiting: tuple[str, EntryRecord] | None = None

    @property
    def stored_bytes(self) -> int:
        """The bytes of the row in which the open question was stored last; 0 without a question."""
        return self._store.row_bytes(self._stored) if self._open and self._stored else 0

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store question and tape; returns the id. Fault `second_question` while one is open."""
        if self._open or _has_unanswered(self._tape):
            raise EffectFailed(Fault("second_question"))
        if self._tape.overflowed:
            raise EffectFailed(Fault("human_unavailable", data={"reason": "size"}))
        self._open = hitl_id = self._new_id()
        stored = False
        self._stored = self._pause(hitl_id, site, question)
        try:
            stored = await self._store.open(self._stored)
        finally:
            if not stored:
                self._open = ""
        if not stored:
            raise EffectFailed(Fault("store_failed", data={"reason": "id"}))
        return hitl_id

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer; while there is none, store the tape as it is now and raise `Paused`."""
        pause = await self._store.get(hitl_id)
        if pause is not None and pause.answer is not None and await self._finish(hitl_id):
            self._open = ""
            return pause.answer
        unanswered = EntryRecord(
            seq=-1,
            port=HUMAN_ANSWER.port,
            op=HUMAN_ANSWER.name,
            site=site,
            at=self._tape.last_stamp,
            end="open",
            args=msgspec.Raw(canonical(AwaitAnswer(hitl_id))),
        )
        self._waiting = hitl_id, unanswered
        await self.store_tape()
        raise Paused(hitl_id)

    async def store_tape(self) -> None:
        """Store the tape as it is now.

        Once more after the exchange has ended: a write that was under way when the flow paused,
        or failed before it waited, has its result on the tape only then.
        """
        if self._tape.overflowed:
            return
        if self._waiting is not None:
            hitl_id, unanswered = self._waiting
            await self._replace_tape(hitl_id, (*self._tape.record(), unanswered))
        elif self._open:
            await self._replace_tape(self._open, self._tape.record())

    async def _replace_tape(self, hitl_id: str, entries: tuple[EntryRecord, ...]) -> None:
        tape = _encode(self._origin.request, entries)
        if await self._store.replace_tape(hitl_id, tape) and self._stored is not None:
            self._stored = msgspec.structs.replace(self._stored, tape=tape)

    async def _finish(self, hitl_id: str) -> bool:
        """Finish a pause whose answer came while the flow runs; False where another run has it.

        Or had it: what that one did is on the tape of the pause alone.
        """
        owner = self._origin.exchange
        if await self._store.claim(hitl_id, owner, _LEASE) != "claimed":
            return False
        pause = await self._store.get(hitl_id)
        if pause is None or pause.continued:
            await self._store.release(hitl_id, owner)
            return False
        return await self._store.finish(hitl_id, owner)

    def _pause(self, hitl_id: str, site: str, question: OpenQuestion) -> Pause:
        origin, now = self._origin, self._wall()
        entries = _with_question(self._tape, site, canonical(question), OpenedQuestion(hitl_id))
        return Pause(
            hitl_id=hitl_id,
            exchange=origin.exchange,
            flow=origin.flow,
            stack=origin.stack,
            created_at=now,
            expires_at=now + origin.seconds,
            session_id=question.session_id,
            user_id=origin.user_id,
            question=question,
            tape=_encode(origin.request, entries),
            answer_site=site,
            answer_key=canonical(AwaitAnswer(hitl_id)).decode(),
        )


def read_paused(tape: bytes) -> PausedTape:
    """Read the tape of a pause, and the request it is of.

    Fault `pause_outdated`; `outcome_unknown` for one that outgrew its bounds before it ended.
    """
    if tape == _OVERFLOWED:
        raise EffectFailed(Fault("outcome_unknown", data={"reason": "size"}))
    try:
        version = msgspec.json.decode(tape, type=_Numbered).v
        if version in {1, _ENDED_VERSION, VERSION}:
            return msgspec.json.decode(tape, type=PausedTape)
    except msgspec.DecodeError as failure:
        raise _outdated(reason="tape") from failure
    raise _outdated(version=version, known=VERSION)


def resume(pause: Pause, answer: HumanAnswer, *, limit: int = 4 << 20) -> tuple[Tape, Entry]:
    """Return a pause's tape with the answer on it, and the answer's entry.

    The exchange goes on after the tape's last stamp; its run gets the policy `resume` and the
    entry. Where the tape was returned with the answer on it, what follows is played as well; a tool
    or worker that had begun results in `outcome_unknown`.
    Fault `pause_outdated` where the tape is not ours, or of a version this code does not read.
    """
    paused, site = read_paused(pause.tape), pause.answer_site
    entries = paused.entries
    if entries:
        last = entries[-1]
        unanswered = (last.port, last.op, last.end)
        if unanswered == (HUMAN_ANSWER.port, HUMAN_ANSWER.name, "open"):
            paused, site = msgspec.structs.replace(paused, entries=entries[:-1]), last.site
    tape = reopened(paused, limit=limit)
    args = canonical(AwaitAnswer(pause.hitl_id))
    for entry in tape.entries:
        if (entry.operation, entry.args, entry.end) == (HUMAN_ANSWER, args, "complete"):
            return tape, entry
    stamp = tape.last_stamp
    entry = tape.add(HUMAN_ANSWER, site, args, stamp)
    entry.append(answer)
    entry.close("complete", stamp)
    return tape, entry


def reopened(paused: PausedTape, *, limit: int) -> Tape:
    """Return a stored tape on which a run goes on; what had begun has no known outcome.

    Fault `pause_outdated` for entries that this code does not read.
    """
    try:
        tape = Tape.load(map(_with_outcome, paused.entries), limit=limit)
    except msgspec.DecodeError as failure:
        raise _outdated(reason="entries") from failure
    tape.recording = True
    return tape


def interrupted_tape(request: RequestRecord, tape: Tape, answer: Entry) -> bytes:
    """Encode the tape of a resumed exchange as it is now, to be stored in its pause.

    `answer` may be any call that the flow is past for good, as those before its end are.

    After the answer what ended counts as done, and what has begun as begun: the rest is called
    again, and so is what it failed in last. Before it everything stays, for the flow has been
    there. What was done is not known any more once the tape has outgrown its bounds: what is stored
    then can be read by `read_paused` no more.
    """
    if tape.overflowed:
        return _OVERFLOWED
    last, entries = tape.entries[-1], list[EntryRecord]()
    version = _ENDED_VERSION
    for entry in tape.entries:
        if entry.seq <= answer.seq or _is_done(entry, failed=entry is last):
            entries.append(entry.record())
        elif entry.begun:
            version = VERSION
            entries.append(msgspec.structs.replace(entry.record(), end="open"))
    return _encode(request, tuple(entries), version)


def unknown_outcomes(paused: PausedTape) -> tuple[str, ...]:
    """Name the tools and workers' actions that had begun when their router was killed."""
    return tuple(
        OPERATIONS[record.port, record.op].subject(record.args, record.site)
        for record in paused.entries
        if _unknown_result(record) is not None
    )


def _unknown_result(record: EntryRecord) -> msgspec.Struct | None:
    """Return the result of a call that had begun and may not be made again; None for others."""
    operation = OPERATIONS.get((record.port, record.op)) if record.end == "open" else None
    return None if operation is None else operation.unknown


def _with_outcome(record: EntryRecord) -> EntryRecord:
    """Return the only result a call that had begun can have, behind the items it had streamed."""
    result = _unknown_result(record)
    if result is None:
        return record
    at = max(record.at, *(msgspec.json.decode(item, type=_Stamped).at for item in record.items), 0)
    result = msgspec.structs.replace(result, at=at)
    items = (*record.items, msgspec.Raw(msgspec.json.encode(result)))
    return msgspec.structs.replace(record, end="complete", ended=at, items=items)


def _encode(
    request: RequestRecord, entries: tuple[EntryRecord, ...], version: int = _ENDED_VERSION
) -> bytes:
    return encode_readable(PausedTape(request, entries, version), raw_values(request, entries))


def _outdated(**data: str | int) -> EffectFailed:
    return EffectFailed(Fault("pause_outdated", data={**data}))


def _is_done(entry: Entry, *, failed: bool) -> bool:
    """Whether a call is never made again.

    That an answer could not be read is not for ever; nor is what a flow `failed` in, which it would
    fail in every time. Stores store the same write once; a tool or a worker may not.
    """
    if entry.known_end != "error":
        return entry.known_end == "complete"
    repeatable = entry.operation.unknown is None
    return not (repeatable and (failed or entry.operation is HUMAN_ANSWER))


def _has_unanswered(tape: Tape) -> bool:
    """Whether a question on the tape has no answer there: one of an interrupted part."""
    opened, answered = set(), set()
    for entry in tape.entries:
        if entry.operation is HUMAN_OPEN and entry.end == "complete":
            opened.add(entry.items[0].hitl_id)
        elif entry.operation is HUMAN_ANSWER and entry.end == "complete":
            answered.add(msgspec.json.decode(entry.args, type=AwaitAnswer).hitl_id)
    return bool(opened - answered)


def _with_question(
    tape: Tape, site: str, args: bytes, question: OpenedQuestion
) -> tuple[EntryRecord, ...]:
    """Record a tape as it will be when the question under way has been opened."""
    under_way = next(
        entry.seq
        for entry in tape.at_site(HUMAN_OPEN, site)
        if entry.args == args and entry.end == "open"
    )
    records = list(tape.record())
    records[under_way] = msgspec.structs.replace(
        records[under_way],
        end="complete",
        ended=records[under_way].at,
        items=(msgspec.Raw(msgspec.json.encode(question)),),
    )
    return tuple(records)
