"""Which turns of a conversation each stack has stored, where each stores its own history."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from contract.records import Outcome
from router.stack import STACKS, StackName

MOST = 50_000
"""How many conversations are remembered; of those used least recently nothing is known."""
STORING: Final[frozenset[Outcome]] = frozenset({"completed", "refused", "paused"})
"""How a run ends that leaves its stack with the whole turn, or with nothing where it refused it."""
_NOTHING = -1


@dataclass(slots=True)
class _Conversation:
    """Its `turns` so far; `stored`: how many each stack has without a gap from the first.

    `stack` is the one that was sent the last turn.
    """

    turns: int = 0
    stack: StackName | None = None
    stored: dict[StackName, int] = field(default_factory=dict)


class ConversationTurn:
    """One turn of a conversation, 1 for its first; 2 or more where that was not seen here."""

    __slots__ = ("_conversation", "number")

    def __init__(self, conversation: _Conversation, stack: StackName) -> None:
        conversation.turns += 1
        conversation.stack = stack
        self._conversation = conversation
        self.number = conversation.turns

    @property
    def known_number(self) -> int:
        """Which turn it is; 0 where the first one was not seen here."""
        return self.number if self._conversation.stored else 0

    def known_to(self, stack: StackName) -> bool:
        """Whether a stack has stored every earlier turn, as far as this process has seen them."""
        return self._conversation.stored.get(stack, _NOTHING) >= self.number - 1

    def move(self, stack: StackName) -> None:
        """Note that the turn is sent to another stack: the conversation goes on there."""
        self._conversation.stack = stack

    def store(self, stack: StackName) -> None:
        """Note that a stack has answered this turn, and so has stored it."""
        stored = self._conversation.stored
        if stored.get(stack) == self.number - 1:
            stored[stack] = self.number


class Histories:
    """The conversations whose turns this process has seen; gone with it.

    A turn that a stack was not sent, or failed at, leaves a gap that nothing closes.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._conversations: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._conversations)

    def open(self, flow: str, conversation: str) -> None:
        """Note that a conversation is new: no stack lacks anything of it.

        One that has been seen here is not: its pin has expired or was released.
        """
        if (flow, conversation) not in self._conversations:
            self._add(flow, conversation, _Conversation(stored=dict.fromkeys(STACKS.values(), 0)))

    def stack_of(self, flow: str, conversation: str) -> StackName | None:
        """Return the stack that was sent the last turn; None where none was seen here."""
        known = self._conversations.get((flow, conversation))
        return None if known is None else known.stack

    def begin_turn(self, flow: str, conversation: str, stack: StackName) -> ConversationTurn:
        """Begin a turn at a stack, of a conversation that is unknown unless it was opened here."""
        known = self._conversations.get((flow, conversation))
        if known is None:
            known = self._add(flow, conversation, _Conversation(turns=1))
        self._conversations.move_to_end((flow, conversation))
        return ConversationTurn(known, stack)

    def _add(self, flow: str, conversation: str, one: _Conversation) -> _Conversation:
        self._conversations[flow, conversation] = one
        if len(self._conversations) > self._most:
            self._conversations.popitem(last=False)
        return one
