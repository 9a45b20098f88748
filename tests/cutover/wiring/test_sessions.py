"""Sessions that are deleted are gone, whatever becomes of their lock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from contract.stores import DataSubject, Turn
from cutover.wiring.sessions import StoredSessions
from effects.memory import InMemoryMemory
from effects.stores import LeasedLocks, MemoryConversations, MemoryPauses
from effects.stores.conversations import ErasedTurns
from effects.stores.fake import MemoryLeases

pytestmark = pytest.mark.virtual


class Forgetful(MemoryConversations):
    """A store of turns behind which the keeper of the locks goes away."""

    def __init__(self, leases: MemoryLeases) -> None:
        super().__init__()
        self._leases = leases

    async def erase(self, whose: DataSubject) -> ErasedTurns:
        """Forget, last but one."""
        self._leases.away = True
        return await super().erase(whose)


@dataclass(frozen=True)
class Live:
    """What a deployment's calls reach."""

    conversations: MemoryConversations
    locks: LeasedLocks
    memory: InMemoryMemory = field(default_factory=InMemoryMemory)


async def test_a_session_is_deleted_though_its_lock_cannot_be_let_go_of() -> None:
    """The lock ends by itself; who is told of a failure would find no session any more."""
    leases = MemoryLeases(lambda: 0.0)
    conversations = Forgetful(leases)
    await conversations.put("message", Turn(message_id="m", role="user", content="Hi", chat_id="s"))
    locks = LeasedLocks.over(leases, lambda: 0.0)
    sessions = StoredSessions(Live(conversations, locks), {}, MemoryPauses())
    assert await sessions.forget("s", lock="session:s")
    assert list(leases.held) == ["session:s"]
    assert await sessions.turns("s") == ()
    await locks.aclose()
