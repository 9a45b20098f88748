"""Pauses in a local SQLite file, one row each, so that they survive a restart."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from effects.human import rows, transitions
from effects.human.pause import GONE_KEPT, ClaimReply, Pause, RespondReply, Swept
from effects.sqlite import SqliteFile
from effects.storable import require_storable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from pathlib import Path

    from contract.human import Answer


class SqlitePauses:
    """Pauses in an SQLite file; made by `SqlitePauses.open_file(path)`.

    Every change reads, decides and writes in one transaction: of several processes that claim a
    pause one gets it.
    """

    def __init__(self, file: SqliteFile, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open_file(
        cls, path: str | Path, clock: Callable[[], float] = time.time
    ) -> AsyncIterator[SqlitePauses]:
        """Open the file, making it where there is none; raises `StoreNotOpened`.

        `clock` gives seconds since the Unix epoch, the same for all processes.
        """
        file = SqliteFile("pauses", unavailable="store_unavailable", failed="store_failed")
        await file.open(path, rows.MIGRATIONS)
        try:
            yield cls(file, clock)
        finally:
            await file.aclose()

    async def open(self, pause: Pause) -> bool:
        """Store a pause; False when the id is taken."""
        transitions.check_pause(pause)
        return await self._file.run(rows.insert, pause)

    async def keep_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        now = self._clock()
        return await self._if_any(
            hitl_id, "", lambda pause: transitions.keep_tape(pause, tape, now)
        )

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        require_storable("store_failed", hitl_id)
        pause = await self._file.run(rows.find, hitl_id)
        return None if pause is None else transitions.seen(pause, self._clock())

    async def respond(self, hitl_id: str, answer: Answer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        require_storable("store_failed", hitl_id)
        now = self._clock()
        reply = await self._file.run(
            rows.change, hitl_id, lambda pause: transitions.respond(pause, answer, now)
        )
        return reply or "unknown"

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it."""
        require_storable("store_failed", hitl_id, owner)
        now = self._clock()
        reply = await self._file.run(
            rows.change, hitl_id, lambda pause: transitions.claim(pause, owner, lease_s, now)
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

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session, but those of one exchange and those continued."""
        require_storable("store_failed", flow, session_id, but)
        return await self._file.run(rows.expire_session, flow, session_id, but, self._clock())

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        now = self._clock()
        pauses = await self._file.run(rows.unfinished, flow, session_id)
        standing = (transitions.seen(pause, now) for pause in pauses)
        return tuple(pause for pause in standing if pause.state != "expired")

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        return await self._file.run(rows.sweep, self._clock(), GONE_KEPT)

    async def forget(self, exchanges: Collection[str], sessions: Collection[str]) -> int:
        """Remove the pauses of exchanges and of sessions, tapes and all; returns how many."""
        require_storable("store_failed", *exchanges, *sessions)
        return await self._file.run(rows.forget, exchanges, sessions)

    async def aclose(self) -> None:
        """Close the file; idempotent."""
        await self._file.aclose()

    async def _if_any(
        self, hitl_id: str, owner: str, step: Callable[[Pause], Pause | None]
    ) -> bool:
        require_storable("store_failed", hitl_id, owner)

        def decide(pause: Pause) -> tuple[bool, Pause]:
            after = step(pause)
            return after is not None, after or pause

        return bool(await self._file.run(rows.change, hitl_id, decide))
