"""Pauses: exchanges that wait for a person's answer, each with its tape in one row.

    open ── answer ──> answered ── claim ──> claimed ── finish ──> done
      └── time, a new turn ──> expired <──┘     └── release, lease over ──> answered

Each step is one `UPDATE … WHERE`, so that of two processes one wins. A claim is a lease with an
owner: after `kill -9` another process may claim the pause once the lease is over, and finds in the
journal which writes were begun, and which of them have a result.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, ParamSpec
from uuid import uuid4

import msgspec
from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.engine import RowMapping

from cutover import effect
from cutover.errors import EffectFailed, Paused
from cutover.records import PauseRecord, PauseState, WriteRecord
from cutover.tape import OUTCOME_UNKNOWN
from effects.database import Database, PauseRow, WriteRow
from effects.world import current
from rules.forms import HumanAnswer

P = ParamSpec("P")

AnswerReply = Literal["stored", "same", "different", "expired", "unknown"]
NotClaimed = Literal["unanswered", "claimed", "done", "expired", "unknown"]

PAUSE_SECONDS = 86_400.0
"""How long a question waits for its answer."""
KEEP_SECONDS = 86_400.0
"""How long after its expiry a pause is still known, so that late callers learn what it became."""


class PauseQuestion(msgspec.Struct, frozen=True):
    """What a pause asks, without its tape; `state` is that of this moment."""

    id: str
    flow: str
    session: str
    stack: str
    question: Any
    frames: Any
    state: PauseState
    expires_at: float
    answer: HumanAnswer | None


def state_at(state: PauseState, expires_at: float, claimed_until: float, now: float) -> PauseState:
    """Return what a stored state is at a moment: time alone expires pauses and ends leases."""
    match state:
        case "claimed" if claimed_until > now:
            return "claimed"
        case "open" | "answered" | "claimed" if expires_at <= now:
            return "expired"
        case "claimed":
            return "answered"
        case _:
            return state


class Pauses:
    """The store of pauses; `clock` returns seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def store(self, pause: PauseRecord) -> None:
        """Store an open pause; once, whatever is stored under its id stays."""
        values = msgspec.structs.asdict(pause) | {
            "question": msgspec.json.encode(pause.question),
            "frames": msgspec.json.encode(pause.frames),
            "answer": None,
        }
        async with self._database.engine.begin() as connection:
            await connection.execute(self._database.insert_new(PauseRow, **values))

    async def put(self, pause: PauseRecord) -> None:
        """Store a pause that is open, for a day; those long over make room."""
        await self.sweep()
        expires_at = self._clock() + PAUSE_SECONDS
        await self.store(msgspec.structs.replace(pause, expires_at=expires_at))

    async def open_question(self, flow: str, session: str) -> str | None:
        """Return the question that a session waits for."""
        question = await self.open_of(flow, session)
        return None if question is None else question.id

    async def question(self, pause_id: str) -> PauseQuestion | None:
        """Return what a pause asks, None where the id is unknown."""
        return await self._question(PauseRow.id == pause_id)

    async def open_of(self, flow: str, session: str) -> PauseQuestion | None:
        """Return a session's newest question that waits for an answer or for being continued."""
        now, waits = self._clock(), PauseRow.state.in_(("open", "answered", "claimed"))
        live = or_(PauseRow.expires_at > now, PauseRow.claimed_until > now)
        return await self._question(PauseRow.flow == flow, PauseRow.session == session, waits, live)

    async def open_counts(self) -> dict[str, int]:
        """Return how many questions wait for their answer, by flow."""
        waits = PauseRow.state == "open", PauseRow.expires_at > self._clock()
        counted = select(PauseRow.flow, func.count()).where(*waits).group_by(PauseRow.flow)
        async with self._database.engine.connect() as connection:
            return dict((await connection.execute(counted)).all())

    async def answer(self, pause_id: str, answer: HumanAnswer) -> AnswerReply:
        """Store the answer to an open question, the first one only.

        The same action and data again are "same", also from another person and when the pause is
        done; others are "different".
        """
        stored = (
            update(PauseRow)
            .where(PauseRow.id == pause_id, PauseRow.state == "open")
            .where(PauseRow.expires_at > self._clock())
            .values(state="answered", answer=msgspec.json.encode(answer))
        )
        if await self._changed(stored):
            return "stored"
        known = await self.question(pause_id)
        if known is None:
            return "unknown"
        if (first := known.answer) is None or known.state == "expired":
            return "expired"
        return "same" if (first.action, first.data) == (answer.action, answer.data) else "different"

    async def claim(self, pause_id: str, lease_seconds: float) -> PauseRecord | NotClaimed:
        """Claim an answered pause for a time and return it, or why it is not to be had."""
        now = self._clock()
        free = or_(
            PauseRow.state == "answered",
            and_(PauseRow.state == "claimed", PauseRow.claimed_until <= now),
        )
        claimed = (
            update(PauseRow)
            .where(PauseRow.id == pause_id, PauseRow.expires_at > now, free)
            .values(state="claimed", owner=uuid4().hex, claimed_until=now + lease_seconds)
            .returning(*PauseRow.__table__.columns)
        )
        async with self._database.engine.begin() as connection:
            row = (await connection.execute(claimed)).mappings().first()
        if row is not None:
            return PauseRecord(**_decoded(row))
        known = await self.question(pause_id)
        match known and known.state:
            case None:
                return "unknown"
            case "open":
                return "unanswered"
            case "done" | "expired" as over:
                return over
            case _:  # "answered" too: it was claimed a moment ago, and is free again
                return "claimed"

    async def renew(self, pause_id: str, owner: str, lease_seconds: float) -> bool:
        """Prolong a claim from now on; False where it is no longer this owner's."""
        prolonged = update(PauseRow).where(_owned(pause_id, owner))
        until = self._clock() + lease_seconds
        return await self._changed(prolonged.values(claimed_until=until)) > 0

    async def release(self, pause_id: str, owner: str) -> bool:
        """End a claim without a result: the pause may be claimed again, until it expires."""
        freed = update(PauseRow).where(_owned(pause_id, owner))
        values = {"state": "answered", "owner": "", "claimed_until": 0.0}
        return await self._changed(freed.values(**values)) > 0

    async def finish(self, pause_id: str, owner: str) -> bool:
        """End a pause that was continued: its contents go, its id and answer remain for a while."""
        done = update(PauseRow).where(_owned(pause_id, owner)).values(state="done", **_EMPTY)
        async with self._database.engine.begin() as connection:
            if not (await connection.execute(done)).rowcount:
                return False
            await connection.execute(delete(WriteRow).where(WriteRow.pause == pause_id))
        return True

    async def begin_write(
        self, pause_id: str, owner: str, key: str, name: str, args: bytes
    ) -> bool:
        """Note a write before it is performed.

        False: it must not be performed, because it was begun before or the claim is another's.
        """
        # The update locks the row: a claim of another process comes before it, or after the note.
        held = update(PauseRow).where(_owned(pause_id, owner)).values(owner=owner)
        values = {"pause": pause_id, "key": key, "name": name, "args": args, "result": None}
        async with self._database.engine.begin() as connection:
            if not (await connection.execute(held)).rowcount:
                return False
            noted = await connection.execute(self._database.insert_new(WriteRow, **values))
            return noted.first() is not None

    async def end_write(self, pause_id: str, key: str, result: bytes) -> None:
        """Note the result of a write, as JSON; that of a lapsed claim too, since it happened."""
        begun = update(WriteRow).where(WriteRow.pause == pause_id, WriteRow.key == key)
        await self._changed(begun.values(result=result))

    async def journal(self, pause_id: str) -> list[WriteRecord]:
        """Return the writes that were begun since the answer, by key."""
        wanted = select(WriteRow.key, WriteRow.name, WriteRow.args, WriteRow.result)
        wanted = wanted.where(WriteRow.pause == pause_id).order_by(WriteRow.key)
        async with self._database.engine.connect() as connection:
            return [WriteRecord(*row) for row in await connection.execute(wanted)]

    async def expire_session(self, flow: str, session: str) -> int:
        """Expire a session's unclaimed pauses and return their number."""
        unclaimed = PauseRow.state.in_(("open", "answered"))
        of_session = and_(PauseRow.flow == flow, PauseRow.session == session, unclaimed)
        expired = update(PauseRow).where(of_session).values(state="expired", **_EMPTY)
        return await self._changed(expired)

    async def sweep(self) -> int:
        """Delete pauses that expired `KEEP_SECONDS` ago and return their number."""
        now = self._clock()
        old = and_(PauseRow.expires_at <= now - KEEP_SECONDS, PauseRow.claimed_until <= now)
        return await self._database.remove(PauseRow, old)

    async def forget(self, flow: str, session: str, *, dry_run: bool = False) -> int:
        """Remove a session's pauses, whatever their state, and return their number.

        An exchange that is being continued makes no further write.
        """
        own = and_(PauseRow.flow == flow, PauseRow.session == session)
        return await self._database.remove(PauseRow, own, dry_run=dry_run)

    async def _changed(self, statement: Any) -> int:
        async with self._database.engine.begin() as connection:
            return (await connection.execute(statement)).rowcount

    async def _question(self, *where: ColumnElement[bool]) -> PauseQuestion | None:
        newest = select(*_SHORT).where(*where).order_by(PauseRow.expires_at.desc()).limit(1)
        async with self._database.engine.connect() as connection:
            row = (await connection.execute(newest)).mappings().first()
        if row is None:
            return None
        found = _decoded(row)
        lease = found.pop("claimed_until")
        state = state_at(found.pop("state"), found["expires_at"], lease, self._clock())
        return PauseQuestion(**found, state=state)


@effect("human.answer")
async def answer(question: str) -> HumanAnswer:
    """Return the answer to a question; raises `Paused` while there is none."""
    world = current()
    found = await Pauses(world.database, world.clock).question(question)
    if found is None or found.answer is None:
        raise Paused(question)
    return found.answer


async def idempotent(
    write: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Make a write that changes nothing when it is made again.

    Where a kill has left its outcome unknown, it is made once more: it is an entry of its own.
    """
    while not await known(write, *args, **kwargs):
        continue


async def known(write: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Make a write and return True; False where a kill has left its outcome unknown.

    Such a write is not made again, and the user is to be told.
    """
    try:
        await write(*args, **kwargs)
    except EffectFailed as failed:
        if failed.kind != OUTCOME_UNKNOWN:
            raise
        return False
    return True


_SHORT = [
    column
    for column in PauseRow.__table__.columns
    if column.name not in {"path", "request", "tape", "owner"}
]
"""What questions and states are read from: a tape may be long."""
_EMPTY = {
    **dict.fromkeys(("request", "tape", "question", "frames"), b""),
    "owner": "",
    "claimed_until": 0.0,
}


def _owned(pause_id: str, owner: str) -> ColumnElement[bool]:
    return and_(PauseRow.id == pause_id, PauseRow.state == "claimed", PauseRow.owner == owner)


def _decoded(row: RowMapping) -> dict[str, Any]:
    """Return the columns of a pause as values; the question of one that is done is None."""
    question, frames = (
        msgspec.json.decode(row[name] or b"null") for name in ("question", "frames")
    )
    answer = msgspec.json.decode(row["answer"] or b"null", type=HumanAnswer | None)
    return {**row, "question": question, "frames": frames, "answer": answer}
