"""Pauses in this process: the fake of the store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from effects.human import transitions
from effects.human.pause import ClaimReply, ExpireReply, Pause, RespondReply, Swept, Waiting
from effects.storable import require_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from contract.human import HumanAnswer


class MemoryPauses:
    """Pauses by id; gone with the process. `clock` gives seconds since the Unix epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pauses: dict[str, Pause] = {}

    async def open(self, pause: Pause) -> bool:
        """Store a pause; False when the id is taken."""
        transitions.check_pause(pause)
        return pause.hitl_id not in self._pauses and self._keep(pause)

    async def keep_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        pause = self._find(hitl_id)
        return self._keep(pause and transitions.keep_tape(pause, tape, self._clock()))

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        pause = self._find(hitl_id)
        return None if pause is None else transitions.seen(pause, self._clock())

    async def respond(self, hitl_id: str, answer: HumanAnswer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        pause = self._find(hitl_id)
        if pause is None:
            return "unknown"
        reply, after = transitions.respond(pause, answer, self._clock())
        self._keep(after)
        return reply

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it."""
        pause = self._find(hitl_id, owner)
        if pause is None:
            return "unknown"
        reply, after = transitions.claim(pause, owner, lease_s, self._clock())
        self._keep(after)
        return reply

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim; False when it has been lost. A tape holds what was done so far."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.renew(pause, owner, lease_s, self._clock(), tape))

    async def give_back(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let somebody else continue, from the tape if there is one; False if not its owner."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.give_back(pause, owner, tape))

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.finish(pause, owner))

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause that nobody is continuing."""
        pause = self._find(hitl_id)
        if pause is None:
            return "unknown"
        reply, after = transitions.expire_one(pause, self._clock())
        self._keep(after)
        return reply

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session, but those of one exchange."""
        require_storable("store_failed", flow, session_id, but)
        now = self._clock()
        theirs = [
            pause
            for pause in self._pauses.values()
            if (pause.flow, pause.session_id) == (flow, session_id) and pause.exchange != but
        ]
        return sum(self._keep(transitions.pass_by(pause, now)) for pause in theirs)

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        now = self._clock()
        pauses = [transitions.seen(pause, now) for pause in self._pauses.values()]
        return tuple(
            msgspec.structs.replace(pause, tape=b"")
            for pause in sorted(pauses, key=lambda pause: (pause.created_at, pause.hitl_id))
            if pause.state not in {"finished", "expired"}
            and session_id in {None, pause.session_id}
            and flow in {None, pause.flow}
        )

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first."""
        sizes = {pause.hitl_id: len(pause.tape) for pause in self._pauses.values()}
        return tuple(
            transitions.waiting(pause, sizes[pause.hitl_id]) for pause in await self.pending()
        )

    async def forget(
        self, exchanges: Collection[str], sessions: Collection[str], users: Collection[str] = ()
    ) -> int:
        """Remove the pauses of exchanges, sessions and users, tapes and all; returns how many."""
        require_storable("store_failed", *exchanges, *sessions, *users)
        found = [
            pause.hitl_id
            for pause in self._pauses.values()
            if pause.exchange in exchanges or pause.session_id in sessions or pause.user_id in users
        ]
        for hitl_id in found:
            del self._pauses[hitl_id]
        return len(found)

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        now = self._clock()
        due = [one for one in self._pauses.values() if transitions.is_due(one, now)]
        for pause in due:
            self._keep(transitions.over(pause, "expired"))
        gone = [one for one in self._pauses.values() if transitions.is_forgotten(one, now)]
        for pause in gone:
            del self._pauses[pause.hitl_id]
        return Swept(len(due), len(gone))

    def _find(self, hitl_id: str, owner: str = "") -> Pause | None:
        require_storable("store_failed", hitl_id, owner)
        return self._pauses.get(hitl_id)

    def _keep(self, pause: Pause | None) -> bool:
        if pause is None:
            return False
        self._pauses[pause.hitl_id] = pause
        return True
