"""A shadow's own conversations: what it answered itself, in place of what was served.

The served store stays the record of what users said; only replies differ.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from contract import operations as ops
from contract.records import OwnHistory
from contract.stores import FoundTurn, FoundTurns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import msgspec

    from contract.operations import Operation
    from contract.stores import Turn

_BESIDE = 512
"""Bytes a reply counts beside its text."""

Place = tuple[str, str]
"""A stack's name, and the id of a chat."""


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """What is kept at most: conversations, each stack's its own; replies in each; bytes in all."""

    sessions: int = 1_000
    replies: int = 100
    size: int = 16 << 20


_PLENTY = ReplyLimits()


class ShadowReplies:
    """The replies of shadows, by stack and conversation; gone with the process.

    Those conversations go first in which nothing was read or written for longest, and of one that
    is too long the oldest replies.
    """

    def __init__(self, most: ReplyLimits = _PLENTY) -> None:
        self.size = 0
        self._most = most
        self._kept: OrderedDict[Place, OrderedDict[str, Turn]] = OrderedDict()
        self._open: WeakSet[ShadowConversation] = WeakSet()

    @property
    def chats(self) -> tuple[str, ...]:
        """The conversations something is kept of, each once."""
        return tuple(dict.fromkeys(chat for _, chat in self._kept))

    def of(self, stack: str) -> ShadowConversation:
        """Open a stack's side of what one exchange reads and writes."""
        side = ShadowConversation(self, stack)
        self._open.add(side)
        return side

    def put(self, place: Place, turn: Turn) -> None:
        """Keep a reply; it takes the place of an earlier one to the same message."""
        replies = self._kept.setdefault(place, OrderedDict())
        self._drop(replies, answered(turn))
        replies[answered(turn)] = turn
        self.size += _size(turn)
        self._kept.move_to_end(place)
        self._shrink(place)

    def read(self, place: Place) -> dict[str, Turn]:
        """Give a stack's replies in a conversation, by the message each answers."""
        if place not in self._kept:
            return {}
        self._kept.move_to_end(place)
        return dict(self._kept[place])

    def forget(self, chat: str) -> None:
        """Remove a conversation of all stacks; exchanges under way keep nothing of it, either."""
        for side in self._open:
            side.forgotten.add(chat)
        for place in [place for place in self._kept if place[1] == chat]:
            self._remove(place)

    def retain(self, chat: str, messages: Collection[str]) -> None:
        """Remove the replies of a conversation to all other messages than these."""
        for place in [place for place in self._kept if place[1] == chat]:
            replies = self._kept[place]
            for answers in [key for key in replies if key not in messages]:
                self._drop(replies, answers)
            if not replies:
                self._remove(place)

    def _shrink(self, newest: Place) -> None:
        replies = self._kept[newest]
        while len(replies) > self._most.replies:
            self._drop(replies, next(iter(replies)))
        while len(self._kept) > self._most.sessions:
            self._remove(next(iter(self._kept)))
        while self.size > self._most.size and len(self._kept) > 1:
            self._remove(next(iter(self._kept)))
        while self.size > self._most.size:
            self._drop(replies, next(iter(replies)))
        if not replies:
            self._remove(newest)

    def _drop(self, replies: OrderedDict[str, Turn], answers: str) -> None:
        turn = replies.pop(answers, None)
        if turn is not None:
            self.size -= _size(turn)

    def _remove(self, place: Place) -> None:
        replies = self._kept.pop(place)
        self.size -= sum(map(_size, replies.values()))


class ShadowConversation:
    """One stack's side of the conversations one exchange of it reads and writes."""

    def __init__(self, replies: ShadowReplies, stack: str) -> None:
        self.forgotten: set[str] = set()
        self._replies = replies
        self._stack = stack
        self._own: set[str] = set()
        self._other: set[str] = set()
        self._served: set[str] = set()

    @property
    def read(self) -> OwnHistory:
        """Which replies the exchange was told so far."""
        return OwnHistory(len(self._own), len(self._other), len(self._served - self._own))

    def given(self, operation: Operation, arguments: Any, result: msgspec.Struct) -> Any:
        """Give what a call to the store results in here, from what it resulted in there."""
        if operation is ops.TURN_HISTORY and isinstance(result, FoundTurns):
            return FoundTurns(self._history(arguments.chat_id, result.turns, arguments.limit))
        if operation is ops.TURN_FIND and isinstance(result, FoundTurn):
            return FoundTurn(result.turn and self._found(result.turn))
        if operation is ops.TURN_PUT:
            self._keep(arguments.turn)
        return result

    def _keep(self, turn: Turn) -> None:
        chat = turn.chat_id
        if turn.role == "assistant" and chat is not None and chat not in self.forgotten:
            self._replies.put((self._stack, chat), turn)

    def _history(self, chat: str, served: Sequence[Turn], limit: int) -> tuple[Turn, ...]:
        own = self._replies.read((self._stack, chat))
        replied = {answered(turn) for turn in served if turn.role == "assistant"}
        turns: list[Turn] = []
        for turn in served:
            turns.append(self._told(own, turn))
            if turn.role == "user" and turn.message_id in own.keys() - replied:
                turns.append(self._told_alone(own[turn.message_id]))
        return tuple(turns[-limit:]) if limit else ()

    def _found(self, turn: Turn) -> Turn:
        return self._told(self._replies.read((self._stack, turn.chat_id or "")), turn)

    def _told(self, own: dict[str, Turn], turn: Turn) -> Turn:
        """Give a stack's own reply for a served one, the served one where it has none."""
        if turn.role != "assistant":
            return turn
        key = answered(turn)
        mine = own.get(key)
        if mine is None:
            self._served.add(key)
            return turn
        self._own.add(key)
        if mine.content != turn.content:
            self._other.add(key)
        return mine

    def _told_alone(self, mine: Turn) -> Turn:
        """Give a reply to a message that nobody was served one to."""
        self._own.add(answered(mine))
        self._other.add(answered(mine))
        return mine


def answered(turn: Turn) -> str:
    """Name what a reply stands for: the message it answers, else its own id."""
    return turn.reply_to or turn.message_id


def _size(turn: Turn) -> int:
    return _BESIDE + len(turn.content.encode("utf-8", "replace"))
