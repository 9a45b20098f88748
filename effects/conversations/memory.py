"""Conversations in this process: the fake of the port, and enough for a demonstration."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from effects.conversations.turns import Forgotten, check_ids, check_turn, same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.stores import Turn
    from effects.whose import Whose


class MemoryConversations:
    """Turns in the order they were stored; gone with the process."""

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns: dict[str, Turn] = {}
        for turn in turns:
            check_turn(turn)
            self._turns[turn.message_id] = turn

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Everything stored, oldest first."""
        return tuple(self._turns.values())

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        check_ids(message_id)
        return self._turns.get(message_id)

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        return same(self._turns.setdefault(turn.message_id, turn), turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        check_ids(chat_id, before)
        return recent(self._before(chat_id, before), limit)

    async def forget(self, whose: Whose) -> Forgotten:
        """Remove somebody's turns and the replies to them."""
        check_ids(whose.value)
        found = [turn for turn in self._turns.values() if self._is_of(turn, whose)]
        for turn in found:
            del self._turns[turn.message_id]
        return Forgotten(len(found), frozenset(turn.chat_id for turn in found if turn.chat_id))

    def _is_of(self, turn: Turn, whose: Whose) -> bool:
        match whose.kind:
            case "chat":
                return turn.chat_id == whose.value
            case "message":
                return whose.value in {turn.message_id, turn.reply_to}
            case "user":
                asked = self._turns.get(turn.reply_to or "")
                return whose.value in {turn.user_id, asked.user_id if asked else None}
            case _:
                assert_never(whose.kind)

    def _before(self, chat_id: str, before: str) -> list[Turn]:
        earlier: list[Turn] = []
        for turn in self._turns.values():
            if turn.message_id == before:
                break
            if turn.chat_id == chat_id:
                earlier.append(turn)
        return earlier


def recent(turns: list[Turn], limit: int) -> tuple[Turn, ...]:
    """Keep the last `limit` of a chat's turns, and of several replies to one message the newest."""
    kept: list[Turn] = []
    answered: set[str] = set()
    for turn in reversed(turns):
        if len(kept) >= limit:
            break
        if turn.role == "assistant" and turn.reply_to is not None:
            if turn.reply_to in answered:
                continue
            answered.add(turn.reply_to)
        kept.append(turn)
    return tuple(reversed(kept))
