"""In turn: shadows that hold a conversation of their own run in the order of its exchanges.

The second turn reads what the first one answered, so it waits for it; others need not.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar


class Turn(Protocol):
    """What waits for its turn in a conversation; "" is none, and never waits."""

    @property
    def exchange(self) -> str:
        """The exchange it belongs to."""
        ...

    @property
    def conversation(self) -> str:
        """The conversation it belongs to."""
        ...


T = TypeVar("T", bound=Turn)


class InTurn(Generic[T]):
    """Who comes when in each conversation; those that were opened first come first."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[str]] = {}
        self._waiting: dict[str, T] = {}

    @property
    def waiting(self) -> tuple[T, ...]:
        """Those whose turn has not come."""
        return tuple(self._waiting.values())

    def expect(self, turn: T) -> None:
        """Put one at the end of its conversation's line: it has begun, and may run later."""
        if turn.conversation:
            self._lines.setdefault(turn.conversation, deque()).append(turn.exchange)

    def wait(self, turn: T) -> bool:
        """Let one that could run wait if others come before it; False where none does."""
        line = self._lines.get(turn.conversation)
        if not line or turn.exchange not in line or line[0] == turn.exchange:
            return False
        self._waiting[turn.exchange] = turn
        return True

    def leave(self, turn: T) -> T | None:
        """Take one out of its line, wherever it stood; gives the one whose turn has come."""
        self._waiting.pop(turn.exchange, None)
        line = self._lines.get(turn.conversation)
        if line is None:
            return None
        if turn.exchange in line:
            line.remove(turn.exchange)
        if not line:
            del self._lines[turn.conversation]
            return None
        return self._waiting.pop(line[0], None)
