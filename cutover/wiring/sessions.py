"""What is kept of conversations, in all stores together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from contract.errors import Refused
from effects.stores.shadow_replies import ShadowReplies
from effects.stores.values import DataSubject
from router.serving.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.ports import Conversations, Memory
    from contract.stores import Turn
    from cutover.stores import Locks
    from effects.stores import PauseStore
    from router.stack import Stack, StackName

MOST_TURNS = 10_000
"""Of one session that are read at once."""
_TTL = 60.0
_SITE = "sessions"


class Live(Protocol):
    """The live ports whose stores hold conversations."""

    @property
    def conversations(self) -> Conversations:
        """Turns."""
        ...

    @property
    def memory(self) -> Memory:
        """What was learnt in them."""
        ...

    @property
    def locks(self) -> Locks:
        """Who is at one of them."""
        ...


@dataclass(frozen=True, slots=True)
class KeptSessions:
    """Reads and forgets conversations: turns, memories, pauses, what stacks and shadows keep."""

    live: Live
    stacks: Mapping[StackName, Stack]
    pauses: PauseStore
    own_replies: ShadowReplies = field(default_factory=ShadowReplies)

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Read every turn of a session, oldest first; none of one nobody knows."""
        return await self.live.conversations.history(_SITE, session_id, before="", limit=MOST_TURNS)

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Remove a session everywhere; False when nothing was kept.

        Raises `Refused` 409 while an exchange holds `lock`, 503 where a service keeps the turns.
        """
        locks = self.live.locks.for_exchange()
        if not await locks.acquire(_SITE, lock, _TTL):
            raise Refused(409, "session_busy", "a turn of this session is under way")
        try:
            return await self._forget(session_id)
        finally:
            await locks.aclose()  # one that cannot be let go of ends by itself: all is done

    async def _forget(self, session_id: str) -> bool:
        whose = DataSubject("chat", session_id)
        store: Any = self.live.conversations
        if not hasattr(store, "forget"):
            raise Refused(503, "kept_elsewhere", "a service keeps the turns: ask it")
        memory: Any = self.live.memory
        pauses: Any = self.pauses
        self.own_replies.forget(session_id)
        # The turns go after what is a copy of them: who has to come again is to find the session.
        for stack in self.stacks.values():
            if isinstance(stack, LocalStack) and stack.forget is not None:
                await stack.forget(session_id)
        removed: int = await pauses.forget((), (session_id,))
        removed += (await store.forget(whose)).turns
        # Facts are learnt while their turns are there; so this comes last.
        removed += await memory.forget(whose)
        return removed > 0
