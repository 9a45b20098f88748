"""State that the routers of a fleet share: pins of conversations, notes on breakers, spending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
from sqlalchemy import ClauseElement, bindparam, delete, func, select

from effects.stores.database import SqlStore
from effects.stores.tables import (
    BREAKER_NOTES,
    PIN_STORE,
    PINS,
    SHARED_STATE,
    SPENDING,
    Insert,
    Statement,
    Transaction,
    bound,
    upsert,
)

_DIGEST_BYTES = 16


class Pin(msgspec.Struct, frozen=True):
    """The stack a conversation stays on, the configuration that chose it, and since when.

    `since` in microseconds since the Unix epoch.
    """

    stack: Literal["legacy", "graph"]
    version: str
    since: int


class PinStore(Protocol):
    """Stores pins; several routers may share one."""

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none yet.

        Either way it holds for so many seconds from now. Of many calls at once one sets its pin,
        and all return it. Raises `EffectFailed`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files; idempotent."""
        ...


def pin_key(flow: str, conversation: str) -> str:
    """Name a conversation in a store: never by its own id, which may identify a person."""
    digest = blake2b(conversation.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{flow}:{digest}"


BreakerPhase: TypeAlias = Literal["open", "probing", "closed"]

NOTE_SECONDS = 3_600.0
"""How long a note is stored after its time: every router that runs has read it by then."""
SPENDING_SECONDS = 2 * 86_400
"""How long a day's spending is stored."""


class BreakerNote(msgspec.Struct, frozen=True):
    """The state of a breaker, which holds for `left` seconds by the store's clock.

    `mark` names this very note, and is never used again; `well` counts successful probes.
    """

    mark: str
    phase: BreakerPhase
    left: float = 0.0
    well: int = 0


class NoteUpdate(msgspec.Struct, frozen=True):
    """A note that replaces the one marked `expected`: "" for none, None for whichever it is."""

    key: str
    note: BreakerNote
    expected: str | None = ""


class Spending(msgspec.Struct, frozen=True):
    """Tokens, and money in the currency of the models' prices."""

    tokens: int = 0
    cost: float = 0.0


NO_SPENDING: Final = Spending()


class SharedState(Protocol):
    """What the routers of a fleet know together. All methods raise `EffectFailed`."""

    async def update_notes(self, updates: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Replace the notes that are as expected; returns all notes there are then, by key.

        The same update again changes nothing while its note is there.
        """
        ...

    async def report_spending(self, day: int, router: str, own: Spending) -> Spending:
        """Record all that one router has spent in a day; returns what all of them have.

        `day` counts from the Unix epoch, in UTC. The same report again changes nothing.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files; idempotent."""
        ...


def replaces(update: NoteUpdate, mark: str) -> bool:
    """Whether an update replaces the note with this mark, "" for none."""
    return mark != update.note.mark and update.expected in (None, mark)


def total(spending: Sequence[Spending]) -> Spending:
    """Add up."""
    return Spending(sum(one.tokens for one in spending), sum(one.cost for one in spending))


def _hold_pin(insert: Insert) -> ClauseElement:
    row = insert(PINS).values(bound(PINS))
    statement: ClauseElement = row.on_conflict_do_update(
        index_elements=["key"], set_={"expires": row.excluded.expires}
    ).returning(PINS.c.stack, PINS.c.version, PINS.c.since)
    return statement


_EXPIRE_PINS: Final = Statement(delete(PINS).where(PINS.c.expires <= bindparam("now")))
_HOLD_PIN: Final = Statement(_hold_pin)


class SqlPins(SqlStore):
    """Pins in a database."""

    schema = PIN_STORE
    busy_ms = 50  # the request waits with it

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none; it holds for `seconds`."""
        return await self._database.transact(
            _hold(pin_key(flow, conversation), pin, self._wall(), seconds)
        )

    async def _expire(self) -> None:
        # Many may have expired since the last router stopped: not while a request waits.
        await self._database.execute(_EXPIRE_PINS(now=self._wall()))


def _hold(key: str, pin: Pin, now: float, seconds: float) -> Transaction[Pin]:
    yield _EXPIRE_PINS(now=now)
    rows, _ = yield _HOLD_PIN(key=key, expires=now + seconds, **msgspec.structs.asdict(pin))
    return Pin(*rows[0])


_DAY_SECONDS = 86_400

_N: Final = BREAKER_NOTES.c
_S: Final = SPENDING.c
_REMOVE_NOTES: Final = Statement(delete(BREAKER_NOTES).where(_N.until <= bindparam("before")))
_READ_MARK: Final = Statement(select(_N.mark).where(_N.key == bindparam("key")))
_PUT_NOTE: Final = upsert(BREAKER_NOTES)
_READ_NOTES: Final = Statement(select(BREAKER_NOTES).where(_N.until > bindparam("before")))
_READ_OWN: Final = Statement(
    select(_S.tokens, _S.cost).where(_S.day == bindparam("day"), _S.who == bindparam("who"))
)
_REMOVE_DAYS: Final = Statement(delete(SPENDING).where(_S.day < bindparam("before")))
_PUT_SPENDING: Final = upsert(SPENDING)
_SUM: Final = Statement(
    select(func.coalesce(func.sum(_S.tokens), 0), func.coalesce(func.sum(_S.cost), 0.0)).where(
        _S.day == bindparam("day")
    )
)


class SqlSharedState(SqlStore):
    """Shared state in a database; only changes are written."""

    schema = SHARED_STATE
    busy_ms = 500

    async def update_notes(self, updates: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Replace the notes that are as expected; returns all notes there are then, by key."""
        now = self._wall()
        if updates:
            await self._database.transact(_update_notes(updates, now))
        rows, _ = await self._database.execute(_READ_NOTES(before=now - NOTE_SECONDS))
        return {
            key: BreakerNote(mark, phase, max(until - now, 0.0), well)
            for key, mark, phase, until, well in rows
        }

    async def report_spending(self, day: int, router: str, own: Spending) -> Spending:
        """Record all that one router has spent in a day; returns what all of them have."""
        rows, _ = await self._database.execute(_READ_OWN(day=day, who=router))
        if not rows or rows[0] != (own.tokens, own.cost):
            await self._database.transact(_report_spending(day, router, own))
        rows, _ = await self._database.execute(_SUM(day=day))
        return Spending(*rows[0])


def _update_notes(updates: Sequence[NoteUpdate], now: float) -> Transaction[None]:
    yield _REMOVE_NOTES(before=now - NOTE_SECONDS)
    for update in updates:
        rows, _ = yield _READ_MARK(key=update.key)
        if replaces(update, rows[0][0] if rows else ""):
            note = update.note
            yield _PUT_NOTE(
                key=update.key,
                mark=note.mark,
                phase=note.phase,
                until=now + note.left,
                well=note.well,
            )


def _report_spending(day: int, router: str, own: Spending) -> Transaction[None]:
    yield _REMOVE_DAYS(before=day - SPENDING_SECONDS // _DAY_SECONDS)
    yield _PUT_SPENDING(day=day, who=router, tokens=own.tokens, cost=own.cost)
