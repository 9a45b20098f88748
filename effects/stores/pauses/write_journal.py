"""The journal of every exchange's writes: what a killed router has done, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

import msgspec
from sqlalchemy import and_, bindparam, delete, or_, select, update

from effects.stores.database import SqlStore
from effects.stores.tables import EXCHANGE_WRITES, WRITE_JOURNAL, Statement, upsert

WriteState = Literal["begun", "done", "failed", "in_doubt"]
"""`in_doubt`: it began, and has ended without anybody knowing what came of it."""

UNENDED_SECONDS: Final = 86_400.0
"""An exchange that has not ended for so long after a write never will."""


class StoredWrite(msgspec.Struct, frozen=True):
    """A write of an exchange; `what` names operation and tool, nothing of its arguments.

    Seconds since the Unix epoch: when it `began`, and `until` when it may take.
    """

    exchange: str
    seq: int
    flow: str
    what: str
    state: WriteState
    began: float
    until: float


class WriteJournal(Protocol):
    """Stores the writes of exchanges that have not ended. All methods raise `EffectFailed`."""

    async def begin(self, write: StoredWrite) -> None:
        """Store that a write begins."""
        ...

    async def end(self, exchange: str, seq: int, state: WriteState) -> None:
        """Store what came of it."""
        ...

    async def close(self, exchange: str) -> None:
        """Remove the writes of an exchange that has ended, but not those in doubt."""
        ...

    async def abandoned(self, now: float) -> tuple[StoredWrite, ...]:
        """Remove and return the writes of exchanges whose router was killed, and those in doubt.

        That is known once a write has no result when its time is over, or after a day. They come
        in their order.
        """
        ...


_W: Final = EXCHANGE_WRITES.c
_BEGIN: Final = upsert(EXCHANGE_WRITES)
_END: Final = Statement(
    update(EXCHANGE_WRITES)
    .values(state=bindparam("new_state"))
    .where(_W.exchange == bindparam("of_exchange"), _W.seq == bindparam("of_seq"))
)
_CLOSE: Final = Statement(
    delete(EXCHANGE_WRITES).where(
        _W.exchange == bindparam("of_exchange"), _W.state != bindparam("in_doubt")
    )
)
_OVERDUE: Final = or_(
    and_(
        or_(_W.state == bindparam("begun"), _W.state == bindparam("in_doubt")),
        _W.until <= bindparam("now"),
    ),
    _W.began <= bindparam("before"),
)
_ABANDONED: Final = Statement(
    delete(EXCHANGE_WRITES)
    .where(_W.exchange.in_(select(EXCHANGE_WRITES.c.exchange).where(_OVERDUE)))
    .returning(*EXCHANGE_WRITES.c)
)


class SqlWriteJournal(SqlStore):
    """The journal in a database; made by `SqlWriteJournal.open(place)`."""

    schema = WRITE_JOURNAL

    async def begin(self, write: StoredWrite) -> None:
        """Store that a write begins."""
        await self._database.execute(_BEGIN(**msgspec.structs.asdict(write)))

    async def end(self, exchange: str, seq: int, state: WriteState) -> None:
        """Store what came of it."""
        await self._database.execute(_END(of_exchange=exchange, of_seq=seq, new_state=state))

    async def close(self, exchange: str) -> None:
        """Remove the writes of an exchange that has ended, but not those in doubt."""
        await self._database.execute(_CLOSE(of_exchange=exchange, in_doubt="in_doubt"))

    async def abandoned(self, now: float) -> tuple[StoredWrite, ...]:
        """Remove and return the writes of killed routers, and those in doubt, in their order."""
        before = now - UNENDED_SECONDS
        due = _ABANDONED(begun="begun", in_doubt="in_doubt", now=now, before=before)
        rows, _ = await self._database.execute(due)
        names = EXCHANGE_WRITES.c.keys()
        return _in_order(StoredWrite(**dict(zip(names, row, strict=True))) for row in rows)


class MemoryWriteJournal:
    """The journal in this process, with which it is gone."""

    def __init__(self) -> None:
        self._writes: dict[tuple[str, int], StoredWrite] = {}

    async def begin(self, write: StoredWrite) -> None:
        """Store that a write begins."""
        self._writes[write.exchange, write.seq] = write

    async def end(self, exchange: str, seq: int, state: WriteState) -> None:
        """Store what came of it."""
        if (write := self._writes.get((exchange, seq))) is not None:
            self._writes[exchange, seq] = msgspec.structs.replace(write, state=state)

    async def close(self, exchange: str) -> None:
        """Remove the writes of an exchange that has ended, but not those in doubt."""
        for one in list(self._writes.values()):
            if one.exchange == exchange and one.state != "in_doubt":
                del self._writes[one.exchange, one.seq]

    async def abandoned(self, now: float) -> tuple[StoredWrite, ...]:
        """Remove and return the writes of killed routers, and those in doubt, in their order."""
        exchanges = {
            write.exchange
            for write in self._writes.values()
            if (write.state in {"begun", "in_doubt"} and write.until <= now)
            or write.began <= now - UNENDED_SECONDS
        }
        found = [one for one in self._writes.values() if one.exchange in exchanges]
        for one in found:
            del self._writes[one.exchange, one.seq]
        return _in_order(found)


def _in_order(writes: Iterable[StoredWrite]) -> tuple[StoredWrite, ...]:
    return tuple(sorted(writes, key=lambda write: (write.exchange, write.seq)))
