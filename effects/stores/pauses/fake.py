"""Pauses in this process: the fake of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import msgspec

from effects.stores.pauses import transitions
from effects.stores.pauses.pause import Pause, Swept, Waiting
from effects.stores.pauses.store import PauseStore, Reply
from effects.stores.values import require_storable


class MemoryPauses(PauseStore):
    """Pauses by id; gone with the process. `clock` returns seconds since the Unix epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._pauses: dict[str, Pause] = {}

    async def open(self, pause: Pause) -> bool:
        """Store a pause; False when the id is taken."""
        transitions.check_pause(pause)
        if pause.hitl_id in self._pauses:
            return False
        self._pauses[pause.hitl_id] = pause
        return True

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        require_storable("store_failed", hitl_id)
        pause = self._pauses.get(hitl_id)
        return None if pause is None else transitions.seen(pause, self._clock())

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session, but those of one exchange."""
        require_storable("store_failed", flow, session_id, but)
        now = self._clock()
        return self._replace(
            transitions.pass_by(pause, now)
            for pause in self._pauses.values()
            if (pause.flow, pause.session_id) == (flow, session_id) and pause.exchange != but
        )

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        return tuple(
            msgspec.structs.replace(pause, tape=b"")
            for pause in self._live()
            if session_id in {None, pause.session_id} and flow in {None, pause.flow}
        )

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first."""
        return tuple(transitions.waiting(pause, len(pause.tape)) for pause in self._live())

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        now = self._clock()
        expired = self._replace(
            transitions.over(pause, "expired")
            for pause in self._pauses.values()
            if transitions.is_due(pause, now)
        )
        return Swept(expired, self._remove(lambda pause: transitions.remains_due(pause, now)))

    async def erase(
        self, exchanges: Collection[str], sessions: Collection[str], users: Collection[str] = ()
    ) -> int:
        """Remove the pauses of exchanges, sessions and users, tapes and all; returns how many."""
        require_storable("store_failed", *exchanges, *sessions, *users)
        return self._remove(
            lambda pause: (
                pause.exchange in exchanges
                or pause.session_id in sessions
                or pause.user_id in users
            )
        )

    async def _move(
        self,
        hitl_id: str,
        decide: Callable[[Pause], tuple[Reply, Pause]],
        *,
        question: bool = False,
    ) -> Reply | None:
        if (pause := self._pauses.get(hitl_id)) is None:
            return None
        reply, self._pauses[hitl_id] = decide(pause)
        return reply

    def _live(self) -> list[Pause]:
        now = self._clock()
        pauses = (transitions.seen(pause, now) for pause in self._pauses.values())
        live = (pause for pause in pauses if pause.state not in transitions.OVER)
        return sorted(live, key=lambda pause: (pause.created_at, pause.hitl_id))

    def _replace(self, moved: Iterable[Pause | None]) -> int:
        after = {pause.hitl_id: pause for pause in moved if pause is not None}
        self._pauses |= after
        return len(after)

    def _remove(self, condition: Callable[[Pause], bool]) -> int:
        found = [pause.hitl_id for pause in self._pauses.values() if condition(pause)]
        for hitl_id in found:
            del self._pauses[hitl_id]
        return len(found)
