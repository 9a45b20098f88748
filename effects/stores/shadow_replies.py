"""The conversations a shadow reads: what it answered itself, in place of what was served.

The served store stays the record of what users wrote; only replies differ.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakSet

import msgspec

from contract.operations import TURN_FIND, TURN_HISTORY, TURN_PUT, Operation
from contract.records import OwnHistory
from contract.stores import ChatKey, FoundTurn, FoundTurns, Turn

_OVERHEAD = 512
"""Bytes a reply counts beside its text."""

_Side: TypeAlias = tuple[str, ChatKey]
"""A stack's name, and a chat."""


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """The most that is stored: conversations, each stack's its own; replies in each; bytes."""

    sessions: int = 1_000
    replies: int = 100
    size: int = 16 << 20


_DEFAULT_LIMITS = ReplyLimits()


class ShadowReplies:
    """The replies of shadows, by stack and conversation; gone with the process.

    Beyond the limits the conversations that were not used for longest go first, and of one that is
    too long its oldest replies.
    """

    def __init__(self, limits: ReplyLimits = _DEFAULT_LIMITS) -> None:
        self.size = 0
        self._limits = limits
        self._replies: OrderedDict[_Side, OrderedDict[str, Turn]] = OrderedDict()
        self._open: WeakSet[ShadowConversation] = WeakSet()

    @property
    def chats(self) -> tuple[ChatKey, ...]:
        """The conversations with replies, each once."""
        return tuple(dict.fromkeys(chat for _, chat in self._replies))

    def of(self, stack: str, flow: str = "") -> ShadowConversation:
        """Open a stack's view of the conversations of one exchange, which is of a flow."""
        view = ShadowConversation(self, stack, flow)
        self._open.add(view)
        return view

    def put(self, side: _Side, turn: Turn) -> None:
        """Store a reply, in place of an earlier one to the same message."""
        replies = self._replies.setdefault(side, OrderedDict())
        self._drop(replies, answered(turn))
        replies[answered(turn)] = turn
        self.size += _size(turn)
        self._replies.move_to_end(side)
        self._shrink(side)

    def read(self, side: _Side) -> dict[str, Turn]:
        """Return a stack's replies in a conversation, by the message each answers."""
        if side not in self._replies:
            return {}
        self._replies.move_to_end(side)
        return dict(self._replies[side])

    def forget(self, chat: ChatKey) -> None:
        """Remove a conversation of all stacks; open exchanges store nothing more of it."""
        for view in self._open:
            view.forgotten.add(chat)
        for side in self._of_chat(chat):
            self._remove(side)

    def retain(self, chat: ChatKey, messages: Collection[str]) -> None:
        """Remove the replies of a conversation to all other messages than these."""
        for side in self._of_chat(chat):
            replies = self._replies[side]
            for answers in replies.keys() - messages:
                self._drop(replies, answers)
            if not replies:
                self._remove(side)

    def _of_chat(self, chat: ChatKey) -> list[_Side]:
        return [side for side in self._replies if side[1] == chat]

    def _shrink(self, newest: _Side) -> None:
        replies, limits = self._replies[newest], self._limits
        while len(replies) > limits.replies:
            self._drop(replies, next(iter(replies)))
        while len(self._replies) > limits.sessions or (
            self.size > limits.size and len(self._replies) > 1
        ):
            self._remove(next(iter(self._replies)))
        while self.size > limits.size:
            self._drop(replies, next(iter(replies)))
        if not replies:
            self._remove(newest)

    def _drop(self, replies: OrderedDict[str, Turn], answers: str) -> None:
        turn = replies.pop(answers, None)
        if turn is not None:
            self.size -= _size(turn)

    def _remove(self, side: _Side) -> None:
        self.size -= sum(map(_size, self._replies.pop(side).values()))


class ShadowConversation:
    """One stack's view of the conversations that one exchange reads and writes."""

    def __init__(self, replies: ShadowReplies, stack: str, flow: str) -> None:
        self.forgotten: set[ChatKey] = set()
        self._replies = replies
        self._stack = stack
        self._flow = flow
        self._own: set[str] = set()
        self._other: set[str] = set()
        self._served: set[str] = set()

    @property
    def read(self) -> OwnHistory:
        """How many own, differing and served replies the exchange has read so far."""
        return OwnHistory(len(self._own), len(self._other), len(self._served - self._own))

    def result(self, operation: Operation, arguments: Any, served: msgspec.Struct) -> Any:
        """Return the result of a call to the store in this view, from the served result."""
        if operation is TURN_HISTORY and isinstance(served, FoundTurns):
            return FoundTurns(self._history(arguments.chat_id, served.turns, arguments.limit))
        if operation is TURN_FIND and isinstance(served, FoundTurn) and served.turn:
            turn = served.turn
            return FoundTurn(self._own_or(turn, self._replies.read(self._side(turn.chat_id))))
        if operation is TURN_PUT:
            turn = arguments.turn
            side = self._side(turn.chat_id)
            if turn.role == "assistant" and turn.chat_id and side[1] not in self.forgotten:
                self._replies.put(side, turn)
        return served

    def _side(self, chat: str | None) -> _Side:
        return self._stack, ChatKey(self._flow, chat or "")

    def _history(self, chat: str, served: Sequence[Turn], limit: int) -> tuple[Turn, ...]:
        own = self._replies.read(self._side(chat))
        replied = {answered(turn) for turn in served if turn.role == "assistant"}
        turns: list[Turn] = []
        for turn in served:
            turns.append(self._own_or(turn, own))
            if turn.role == "user" and turn.message_id in own.keys() - replied:
                # A reply that exists only in the shadow's history.
                self._own.add(turn.message_id)
                self._other.add(turn.message_id)
                turns.append(own[turn.message_id])
        return tuple(turns[-limit:]) if limit else ()

    def _own_or(self, turn: Turn, own: dict[str, Turn]) -> Turn:
        """Return the stack's own reply for a served one, the served one where it has none."""
        if turn.role != "assistant":
            return turn
        key = answered(turn)
        reply = own.get(key)
        if reply is None:
            self._served.add(key)
            return turn
        self._own.add(key)
        if (reply.content, reply.data) != (turn.content, turn.data):
            self._other.add(key)
        return msgspec.structs.replace(reply, at=turn.at)


def answered(turn: Turn) -> str:
    """Return the id of the message a reply answers, else its own."""
    return turn.reply_to or turn.message_id


def _size(turn: Turn) -> int:
    data = b"" if turn.data is None else msgspec.json.encode(turn.data)
    return _OVERHEAD + len(turn.content.encode("utf-8", "replace")) + len(data)
