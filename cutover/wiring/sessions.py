"""Conversations in all stores together: read, and deleted everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from contract.errors import Refused
from contract.human import PendingQuestion
from contract.ports import Memory
from contract.stores import ChatKey, DataSubject, Turn
from cutover.stores import Locks
from effects.stores import ConversationStore, PauseStore
from effects.stores.shadow_replies import ShadowReplies
from router.serving.stack import LocalStack, Stack
from router.stack import StackName

MOST_TURNS = 10_000
"""Turns of one session read at once."""
_LOCK_SECONDS = 60.0
_SITE = "sessions"


class SessionPorts(Protocol):
    """The live ports whose stores hold conversations."""

    @property
    def conversations(self) -> ConversationStore:
        """Turns."""
        ...

    @property
    def memory(self) -> Memory:
        """Facts learnt from turns."""
        ...

    @property
    def locks(self) -> Locks:
        """The lock of each conversation."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSessions:
    """Reads and deletes conversations: turns, memories, pauses, copies of stacks and shadows.

    Those of a flow, by `of`; memories are the user's in every flow, so those learnt in a session
    of the same id elsewhere are deleted with it.
    """

    live: SessionPorts
    stacks: Mapping[StackName, Stack]
    pauses: PauseStore
    own_replies: ShadowReplies = field(default_factory=ShadowReplies)
    flow: str = ""

    def of(self, flow: str) -> StoredSessions:
        """Return the conversations of a flow."""
        return replace(self, flow=flow)

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Return every turn of a session, oldest first; () for an unknown one."""
        conversations = self.live.conversations.of(self.flow)
        return await conversations.history(_SITE, session_id, before="", limit=MOST_TURNS)

    async def questions(self, session_id: str) -> tuple[PendingQuestion, ...]:
        """Return the questions of a session that wait for an answer, or to be resumed."""
        found = await self.pauses.pending(session_id, flow=self.flow or None)
        return tuple(
            PendingQuestion(pause.hitl_id, pause.question.form)
            for pause in found
            if pause.question is not None and pause.state in {"open", "answered"}
        )

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Delete a session everywhere; False when nothing was stored.

        Raises `Refused` 409 while an exchange holds `lock`, 503 where a service stores the turns.
        """
        locks = self.live.locks.for_exchange(self.flow)
        if not await locks.acquire(_SITE, lock, _LOCK_SECONDS):
            raise Refused(409, "session_busy", "a turn of this session is under way")
        try:
            return await self._delete(session_id)
        finally:
            await locks.aclose()  # a lock that cannot be released expires

    async def _delete(self, session_id: str) -> bool:
        subject = DataSubject("chat", session_id, self.flow)
        conversations: Any = self.live.conversations
        if not hasattr(conversations, "erase"):
            raise Refused(503, "kept_elsewhere", "a service keeps the turns: ask it")
        memory: Any = self.live.memory
        pauses: Any = self.pauses
        self.own_replies.forget(ChatKey(self.flow, session_id))
        # Copies before the turns: after a failure the session must still be found.
        for stack in self.stacks.values():
            if isinstance(stack, LocalStack) and stack.forget is not None:
                await stack.forget(session_id)
        removed: int = await pauses.erase((), (session_id,), flow=self.flow or None)
        removed += (await conversations.erase(subject)).turns
        # Facts are learnt while their turns exist, so they are deleted last.
        removed += await memory.erase(subject)
        return removed > 0
