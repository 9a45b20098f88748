"""Pauses in a table: what every database does alike, over the little in which they differ."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from effects.stores.pauses import rows, transitions
from effects.stores.pauses.encryption import Encryption, Plaintext
from effects.stores.pauses.pause import (
    GONE_KEPT,
    ClaimReply,
    ExpireReply,
    Pause,
    RespondReply,
    Swept,
    Waiting,
)
from effects.stores.pauses.rows import Codec, Row, Values
from effects.stores.values import require_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from contract.human import HumanAnswer

Reply = TypeVar("Reply")


class Table(Protocol):
    """The table of pauses; statements name their values `:name`. Raises `EffectFailed`."""

    @property
    def fault(self) -> str | None:
        """Why nobody waits for it now; None where it answers."""
        ...

    async def write(self, statement: str, values: Values) -> int:
        """Execute one statement; returns how many rows it touched."""
        ...

    async def read(self, query: str, values: Values) -> Sequence[Row]:
        """Read rows."""
        ...

    async def change(self, query: str, values: Values, decide: Callable[[Row], Values]) -> None:
        """Read rows, decide which columns of each get which values, write them; all or nothing.

        Nobody else changes these rows in between.
        """
        ...

    async def erase(self, deletions: Sequence[tuple[str, Values]]) -> int:
        """Delete rows for good; returns how many."""
        ...

    async def aclose(self) -> None:
        """Close it; idempotent."""
        ...


class StoredPauses:
    """Pauses in a table: every change reads, decides and writes in one transaction.

    Of several processes that claim a pause one gets it. `clock` gives seconds since the Unix
    epoch, the same for all processes.
    """

    def __init__(
        self,
        table: Table,
        *,
        sealing: Encryption | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._codec = Codec(sealing or Plaintext())
        self._clock = clock

    @property
    def fault(self) -> str | None:
        """Why nobody waits for the store now; None where it answers."""
        return self._table.fault

    async def open(self, pause: Pause) -> bool:
        """Store a pause; False when the id is taken."""
        transitions.check_pause(pause)
        return bool(await self._table.write(rows.INSERT, self._codec.row(pause)))

    async def keep_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        now = self._clock()
        return await self._if_any(
            hitl_id, "", lambda pause: transitions.keep_tape(pause, tape, now)
        )

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        require_storable("store_failed", hitl_id)
        found = await self._table.read(rows.FIND, {"hitl_id": hitl_id})
        return transitions.seen(self._codec.pause(found[0]), self._clock()) if found else None

    async def respond(self, hitl_id: str, answer: HumanAnswer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        require_storable("store_failed", hitl_id)
        now = self._clock()
        # With the question: an answer is not taken by whoever cannot open what is asked.
        reply = await self._change(
            rows.FIND_LIGHT, hitl_id, lambda pause: transitions.respond(pause, answer, now)
        )
        return reply or "unknown"

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it."""
        require_storable("store_failed", hitl_id, owner)
        now = self._clock()
        reply = await self._change(
            rows.FIND_BARE, hitl_id, lambda pause: transitions.claim(pause, owner, lease_s, now)
        )
        return reply or "unknown"

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim; False when it has been lost. A tape holds what was done so far."""
        now = self._clock()
        return await self._if_any(
            hitl_id, owner, lambda pause: transitions.renew(pause, owner, lease_s, now, tape)
        )

    async def give_back(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let somebody else continue, from the tape if there is one; False if not its owner."""
        return await self._if_any(
            hitl_id, owner, lambda pause: transitions.give_back(pause, owner, tape)
        )

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        return await self._if_any(hitl_id, owner, lambda pause: transitions.finish(pause, owner))

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause that nobody is continuing."""
        require_storable("store_failed", hitl_id)
        now = self._clock()
        reply = await self._change(
            rows.FIND_BARE, hitl_id, lambda pause: transitions.expire_one(pause, now)
        )
        return reply or "unknown"

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session, but those of one exchange."""
        require_storable("store_failed", flow, session_id, but)
        values = {"flow": flow, "session_id": session_id, "but": but}
        now = self._clock()
        return await self._end(
            rows.OF_A_SESSION, values, lambda pause: transitions.pass_by(pause, now)
        )

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        now = self._clock()
        found = await self._table.read(rows.PENDING, {"flow": flow, "session_id": session_id})
        standing = (transitions.seen(self._codec.pause(row), now) for row in found)
        return tuple(pause for pause in standing if pause.state != "expired")

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first; nothing is opened."""
        now = self._clock()
        found = [
            (transitions.seen(self._codec.pause(tuple(row)), now), size)
            for *row, size in await self._table.read(rows.WAITING, {})
        ]
        return tuple(
            transitions.waiting(pause, size) for pause, size in found if pause.state != "expired"
        )

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        now = self._clock()
        expired = await self._end(
            rows.DUE,
            {"now": now},
            lambda pause: (
                transitions.over(pause, "expired") if transitions.is_due(pause, now) else None
            ),
        )
        return Swept(expired, await self._table.write(rows.GONE, {"before": now - GONE_KEPT}))

    async def forget(
        self, exchanges: Collection[str], sessions: Collection[str], users: Collection[str] = ()
    ) -> int:
        """Remove the pauses of exchanges, sessions and users, tapes and all; returns how many."""
        require_storable("store_failed", *exchanges, *sessions, *users)
        sought = {"exchange": exchanges, "session_id": sessions, "user_id": users}
        return await self._table.erase(
            [
                (rows.FORGET[column], {"value": value})
                for column, values in sought.items()
                for value in values
            ]
        )

    async def aclose(self) -> None:
        """Close the store; idempotent."""
        await self._table.aclose()

    async def _change(
        self, query: str, hitl_id: str, decide: Callable[[Pause], tuple[Reply, Pause]]
    ) -> Reply | None:
        """Move one pause; None when there is no such."""
        replies: list[Reply] = []

        def step(row: Row) -> Values:
            before = self._codec.pause(row)
            reply, after = decide(before)
            replies.append(reply)
            return self._codec.changes(before, after)

        await self._table.change(query, {"hitl_id": hitl_id}, step)
        return replies[0] if replies else None

    async def _if_any(
        self, hitl_id: str, owner: str, step: Callable[[Pause], Pause | None]
    ) -> bool:
        require_storable("store_failed", hitl_id, owner)

        def decide(pause: Pause) -> tuple[bool, Pause]:
            after = step(pause)
            return after is not None, after or pause

        return bool(await self._change(rows.FIND_BARE, hitl_id, decide))

    async def _end(self, query: str, values: Values, step: Callable[[Pause], Pause | None]) -> int:
        """Move many pauses; returns how many did."""
        # Every turn of a session asks for this, and mostly nothing waits: that is seen without
        # waiting for who writes.
        if not await self._table.read(query, values):
            return 0
        moved: list[str] = []

        def decide(row: Row) -> Values:
            before = self._codec.pause(row)
            after = step(before)
            if after is None:
                return {}
            moved.append(before.hitl_id)
            return self._codec.changes(before, after)

        await self._table.change(query, values, decide)
        return len(moved)
