"""State that the routers of a fleet share: pins of conversations, notes on breakers, spending."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, Protocol, TypeAlias
from uuid import uuid4

import msgspec
from sqlalchemy import ClauseElement, ColumnElement, bindparam, case, delete, func, select

from contract.errors import EffectFailed
from effects.stores.database import SqlStore
from effects.stores.tables import (
    BREAKER_NOTES,
    PIN_RELEASES,
    PIN_STORE,
    PINS,
    SHARED_STATE,
    SPENDING,
    BoundStatement,
    Insert,
    Statement,
    StatementResult,
    Transaction,
    bound,
    upsert,
)

_DIGEST_BYTES = 16

PinnedStack: TypeAlias = Literal["legacy", "graph"]


class Pin(msgspec.Struct, frozen=True):
    """The stack a conversation stays on, the configuration that chose it, and since when.

    `since` in microseconds since the Unix epoch.
    """

    stack: PinnedStack
    version: str
    since: int


class PinCount(msgspec.Struct, frozen=True):
    """How many conversations of a flow are pinned to each stack."""

    legacy: int = 0
    graph: int = 0


class PinStore(Protocol):
    """Stores pins; several routers may share one."""

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none yet.

        Either way it holds for so many seconds from now. Of many calls at once one sets its pin,
        and all return it. Raises `EffectFailed`.
        """
        ...

    async def move(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Replace the pin of a conversation; raises `EffectFailed`."""
        ...

    async def count(self) -> Mapping[str, PinCount]:
        """Count the pins that hold now, by flow; read in slices, which let `hold` through.

        Raises `EffectFailed`.
        """
        ...

    async def release(self, flow: str, stack: PinnedStack | None = None) -> PinCount:
        """Remove a flow's pins, all or those to one stack; returns how many held.

        Then the flow's mark in `released` changes. Repeat it where it raises `EffectFailed`: some
        may have been removed.
        """
        ...

    async def released(self) -> Mapping[str, str]:
        """Return the mark of each flow's last release; raises `EffectFailed`.

        A router that remembers pins forgets those of a flow whose mark has changed.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and files; idempotent."""
        ...


def pin_key(flow: str, conversation: str) -> str:
    """Name a conversation in a store: never by its own id, which may identify a person."""
    digest = blake2b(conversation.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{flow}:{digest}"


def pins_by_flow(pins: Mapping[tuple[str, str], int]) -> dict[str, PinCount]:
    """Return the counts of flows that have pins from counts by flow and stack."""
    flows = {flow for (flow, _), held in pins.items() if held}
    return {
        flow: PinCount(pins.get((flow, "legacy"), 0), pins.get((flow, "graph"), 0))
        for flow in sorted(flows)
    }


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
    """Tokens, money in the currency of the models' prices, and requests."""

    tokens: int = 0
    cost: float = 0.0
    requests: int = 0


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
    return Spending(
        sum(one.tokens for one in spending),
        sum(one.cost for one in spending),
        sum(one.requests for one in spending),
    )


def _hold_pin(insert: Insert) -> ClauseElement:
    row = insert(PINS).values(bound(PINS))
    statement: ClauseElement = row.on_conflict_do_update(
        index_elements=["key"], set_={"expires": row.excluded.expires}
    ).returning(PINS.c.stack, PINS.c.version, PINS.c.since)
    return statement


_MOVE_PIN: Final = upsert(PINS)
_EXPIRE_PINS: Final = Statement(delete(PINS).where(PINS.c.expires <= bindparam("now")))
_HOLD_PIN: Final = Statement(_hold_pin)

_READ_ROWS = 5_000
_REMOVED_ROWS = 500
"""Pins that one statement removes, in some 5 ms: a request that pins meanwhile waits 50 ms."""
_PAUSE_SECONDS = 0.005
"""Between two slices that are removed: SQLite has no queue, and others would not get the file."""
_PATIENCE_SECONDS = 5.0
"""How long a release waits for other writers; a request does not wait so long."""


def _flow_of(key: ColumnElement[str]) -> ColumnElement[str]:
    return func.substr(key, 1, func.length(key) - (2 * _DIGEST_BYTES + 1))


_slice = (
    select(_flow_of(PINS.c.key).label("flow"), PINS.c.key, PINS.c.stack, PINS.c.expires)
    .where(PINS.c.key > bindparam("after"))
    .order_by(PINS.c.key)
    .limit(bindparam("most"))
    .subquery()
)
_upto = func.max(_slice.c.key)
_COUNT_SLICE: Final = Statement(
    select(
        _slice.c.flow,
        _slice.c.stack,
        func.sum(case((_slice.c.expires > bindparam("now"), 1), else_=0)),
        _upto,
    )
    .group_by(_slice.c.flow, _slice.c.stack)
    .order_by(_upto)
)
_RELEASE_SLICE: Final = Statement(
    delete(PINS)
    .where(PINS.c.key > bindparam("after"), PINS.c.key <= bindparam("upto"))
    .where(_flow_of(PINS.c.key) == bindparam("flow"))
    .where(PINS.c.stack.in_([bindparam("one"), bindparam("other")]))
    .returning(PINS.c.stack, PINS.c.expires)
)
_PUT_RELEASE: Final = upsert(PIN_RELEASES)
_READ_RELEASES: Final = Statement(select(PIN_RELEASES))


class SqlPins(SqlStore):
    """Pins in a database."""

    schema = PIN_STORE
    busy_ms = 50  # the request waits with it

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none; it holds for `seconds`."""
        return await self._database.transact(
            _hold(pin_key(flow, conversation), pin, self._wall(), seconds)
        )

    async def move(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Replace the pin of a conversation."""
        key, expires = pin_key(flow, conversation), self._wall() + seconds
        await self._database.execute(
            _MOVE_PIN(key=key, expires=expires, **msgspec.structs.asdict(pin))
        )

    async def count(self) -> Mapping[str, PinCount]:
        """Count the pins that hold now, by flow."""
        found, after = Counter[tuple[str, str]](), ""
        while rows := await self._next_slice(after, _READ_ROWS):
            for flow, stack, held, _ in rows:
                found[flow, stack] += held
            after = rows[-1][-1]
        return pins_by_flow(found)

    async def release(self, flow: str, stack: PinnedStack | None = None) -> PinCount:
        """Remove a flow's pins, all or those to one stack; returns how many held."""
        found, after, now = Counter[tuple[str, str]](), "", self._wall()
        one, other = (stack, stack) if stack else ("legacy", "graph")
        while slice_ := await self._next_slice(after, _REMOVED_ROWS):
            upto = slice_[-1][-1]
            removed, _ = await self._patiently(
                _RELEASE_SLICE(after=after, upto=upto, flow=flow, one=one, other=other)
            )
            found.update((flow, pinned) for pinned, expires in removed if expires > now)
            after = upto
        await self._patiently(_PUT_RELEASE(flow=flow, mark=uuid4().hex))
        return pins_by_flow(found).get(flow, PinCount())

    async def released(self) -> Mapping[str, str]:
        """Return the mark of each flow's last release."""
        rows, _ = await self._database.execute(_READ_RELEASES())
        return dict(rows)

    async def _patiently(self, statement: BoundStatement) -> StatementResult:
        """Execute a statement of a release, again while another writer is in the way; then pause.

        Raises `EffectFailed`.
        """
        now = asyncio.get_running_loop().time
        until = now() + _PATIENCE_SECONDS
        while True:
            try:
                return await self._database.execute(statement)
            except EffectFailed as failure:
                if not failure.fault.retryable or now() >= until:
                    raise
            finally:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _next_slice(self, after: str, most: int) -> Sequence[tuple[str, str, int, str]]:
        """Return flow, stack, pins that hold and last key of each kind, those keys in order."""
        slice_ = _COUNT_SLICE(after=after, now=self._wall(), most=most)
        rows, _ = await self._database.execute(slice_)
        return rows

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
    select(_S.tokens, _S.cost, _S.requests).where(
        _S.day == bindparam("day"), _S.who == bindparam("who")
    )
)
_REMOVE_DAYS: Final = Statement(delete(SPENDING).where(_S.day < bindparam("before")))
_PUT_SPENDING: Final = upsert(SPENDING)
_SUM: Final = Statement(
    select(
        func.coalesce(func.sum(_S.tokens), 0),
        func.coalesce(func.sum(_S.cost), 0.0),
        func.coalesce(func.sum(_S.requests), 0),
    ).where(_S.day == bindparam("day"))
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
        if not rows or rows[0] != msgspec.structs.astuple(own):
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
    yield _PUT_SPENDING(day=day, who=router, **msgspec.structs.asdict(own))
