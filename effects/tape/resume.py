"""Pausing and resuming: a human's live port over a store of pauses, and the tape that goes on.

A paused exchange is a tape that ends in a question. What is stored is the request and that tape;
to resume is to add the answer to the tape and to run the flow again on it, on either stack.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from contract import operations as ops
from contract.errors import EffectFailed, Fault, Paused
from contract.human import AwaitAnswer, HumanAnswer, OpenedQuestion, OpenQuestion
from contract.records import EntryRecord, RequestRecord
from effects.stores.pauses.pause import Pause
from effects.tape.keys import canonical
from effects.tape.paused_tape import outdated, read, write
from effects.tape.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from effects.stores.pauses.pause import PauseStore
    from effects.tape.tape import Entry

_LEASE = 60.0
"""Seconds for which an answer that came at once is claimed; it is finished right after."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks: what a pause says of its exchange. `seconds` is how long it waits for an answer.

    `user_id` is whose exchange it is, to be found by when that user is forgotten.
    """

    exchange: str
    flow: str
    stack: str
    request: RequestRecord
    seconds: float = 86_400.0
    user_id: str | None = None


class SuspendingHuman:
    """The human port of one exchange: its question waits in a store, together with its tape.

    `wall` gives seconds since the Unix epoch.
    """

    def __init__(
        self,
        store: PauseStore,
        tape: Tape,
        asking: Asking,
        *,
        wall: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._store = store
        self._tape = tape
        self._asking = asking
        self._wall = wall
        self._new_id = new_id
        self._open = ""
        self._waiting: tuple[str, EntryRecord] | None = None

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store question and tape; returns the id. Fault `second_question` while one is open."""
        if self._open or _unanswered_on(self._tape):
            raise EffectFailed(Fault("second_question"))
        if self._tape.overflowed:
            raise EffectFailed(Fault("human_unavailable", data={"reason": "size"}))
        self._open = hitl_id = self._new_id()
        try:
            stored = await self._store.open(self._pause(hitl_id, site, question))
        except BaseException:
            self._open = ""
            raise
        if not stored:
            self._open = ""
            raise EffectFailed(Fault("store_failed", data={"reason": "id"}))
        return hitl_id

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer; while there is none, store the tape as it is now and raise `Paused`."""
        pause = await self._store.get(hitl_id)
        if pause is not None and pause.answer is not None and await self._take(hitl_id):
            self._open = ""
            return pause.answer
        self._waiting = hitl_id, _unanswered(site, hitl_id, self._tape.last_stamp)
        await self.keep_tape()
        raise Paused(hitl_id)

    async def keep_tape(self) -> None:
        """Store the tape as it is now.

        Once more after the exchange has ended: a write that was under way when the flow paused,
        or broke off before it came to wait, has its result on the tape only then.
        """
        if self._tape.overflowed:
            return
        if self._waiting is not None:
            hitl_id, unanswered = self._waiting
            entries = (*self._tape.record(), unanswered)
            await self._store.keep_tape(hitl_id, self._encoded(entries))
        elif self._open:
            await self._store.keep_tape(self._open, self._encoded(self._tape.record()))

    async def _take(self, hitl_id: str) -> bool:
        """Make sure that nobody else continues with an answer that came while the flow runs."""
        owner = self._asking.exchange
        if await self._store.claim(hitl_id, owner, _LEASE) != "claimed":
            return False
        return await self._store.finish(hitl_id, owner)

    def _pause(self, hitl_id: str, site: str, question: OpenQuestion) -> Pause:
        asking, now = self._asking, self._wall()
        args = canonical(question)
        return Pause(
            hitl_id=hitl_id,
            exchange=asking.exchange,
            flow=asking.flow,
            stack=asking.stack,
            created_at=now,
            expires_at=now + asking.seconds,
            session_id=question.session_id,
            user_id=asking.user_id,
            question=question,
            tape=self._encoded(_asked(self._tape, site, args, OpenedQuestion(hitl_id))),
            answer_site=site,
            answer_key=canonical(AwaitAnswer(hitl_id)).decode(),
        )

    def _encoded(self, entries: tuple[EntryRecord, ...]) -> bytes:
        return write(self._asking.request, entries)


def request_of(pause: Pause) -> RequestRecord:
    """Give what the paused flow was asked; fault `pause_outdated` where the tape is not ours."""
    return read(pause.tape).request


def resume(pause: Pause, answer: HumanAnswer, *, limit: int = 4 << 20) -> tuple[Tape, Entry]:
    """Give a pause's tape with the answer on it, and the answer's entry.

    The exchange goes on after the tape's last stamp; its run gets the policy `resume` and the
    entry. Where the tape was given back with the answer on it, what follows is played as well.
    Fault `pause_outdated` where the tape is not ours, or of a version this code does not read.
    """
    entries, site = read(pause.tape).entries, pause.answer_site
    if entries and _waits(entries[-1]):
        entries, site = entries[:-1], entries[-1].site
    try:
        tape = Tape.load(entries, limit=limit)
    except msgspec.DecodeError as failure:
        raise outdated(reason="entries") from failure
    tape.recording = True
    return tape, _answered(tape, pause.hitl_id) or _with(tape, site, pause.hitl_id, answer)


def broken_off(request: RequestRecord, tape: Tape, answer: Entry) -> bytes:
    """Encode the tape of a resumed exchange that did not come to its end, to be given back.

    After the answer only what ended counts as done: the rest is asked anew, and so is what it
    failed in last. Before it everything stays, for the flow has been there. Once the exchange is
    closed no write is missing. Fault `human_unavailable` where the tape has outgrown its bounds:
    what was done is not known any more, and the pause has to be finished.
    """
    if tape.overflowed:
        raise EffectFailed(Fault("human_unavailable", data={"reason": "size"}))
    last = tape.entries[-1]
    done = [
        entry
        for entry in tape.entries
        if entry.seq <= answer.seq or _is_done(entry, failed=entry is last)
    ]
    entries = tuple(entry.record() for entry in done)
    return write(request, entries)


def _answered(tape: Tape, hitl_id: str) -> Entry | None:
    """Find the answer on a tape that was given back."""
    args = canonical(AwaitAnswer(hitl_id))
    return next(
        (
            entry
            for entry in tape.entries
            if (entry.operation, entry.args, entry.end) == (ops.HUMAN_ANSWER, args, "complete")
        ),
        None,
    )


def _with(tape: Tape, site: str, hitl_id: str, answer: HumanAnswer) -> Entry:
    """Put the answer at the end of a tape."""
    stamp = tape.last_stamp
    entry = tape.add(ops.HUMAN_ANSWER, site, canonical(AwaitAnswer(hitl_id)), stamp)
    entry.append(answer)
    entry.close("complete", stamp)
    return entry


def _is_done(entry: Entry, *, failed: bool) -> bool:
    """Whether a call is never made again.

    That an answer could not be read is not for ever; nor is what a flow `failed` in, which it would
    fail in every time. Stores keep once what they are told twice; a tool may not.
    """
    if entry.end != "error":
        return entry.end == "complete"
    return entry.operation is ops.TOOLS_RUN or not (failed or entry.operation is ops.HUMAN_ANSWER)


def _unanswered_on(tape: Tape) -> bool:
    """Whether a question on the tape has no answer there: one of a part that broke off."""
    asked, answered = set(), set()
    for entry in tape.entries:
        if entry.operation is ops.HUMAN_OPEN and entry.end == "complete":
            asked.add(entry.items[0].hitl_id)
        elif entry.operation is ops.HUMAN_ANSWER and entry.end == "complete":
            answered.add(msgspec.json.decode(entry.args, type=AwaitAnswer).hitl_id)
    return bool(asked - answered)


def _asked(tape: Tape, site: str, args: bytes, question: OpenedQuestion) -> tuple[EntryRecord, ...]:
    """Write a tape down as it will be when the question under way has been asked."""
    under_way = next(
        entry.seq
        for entry in tape.at_site(ops.HUMAN_OPEN, site)
        if entry.args == args and entry.end == "open"
    )
    return tuple(
        msgspec.structs.replace(
            record,
            end="complete",
            ended=record.at,
            items=(msgspec.Raw(msgspec.json.encode(question)),),
        )
        if record.seq == under_way
        else record
        for record in tape.record()
    )


def _unanswered(site: str, hitl_id: str, at: int) -> EntryRecord:
    return EntryRecord(
        seq=-1,
        port=ops.HUMAN_ANSWER.port,
        op=ops.HUMAN_ANSWER.name,
        site=site,
        at=at,
        end="open",
        args=msgspec.Raw(canonical(AwaitAnswer(hitl_id))),
    )


def _waits(record: EntryRecord) -> bool:
    return (record.port, record.op, record.end) == (
        ops.HUMAN_ANSWER.port,
        ops.HUMAN_ANSWER.name,
        "open",
    )
