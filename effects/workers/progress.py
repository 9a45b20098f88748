"""Progress of an action: lines from any thread, bounded in length, rate and number."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contract.errors import visible


@dataclass(frozen=True, slots=True)
class ProgressBounds:
    """Characters of a line; lines at once, in a second after that, and in all."""

    characters: int = 240
    burst: int = 20
    per_second: float = 5.0
    lines: int = 1_000


class ProgressLines:
    """The lines an action reports, for one reader; what exceeds the bounds is counted.

    A line says how many were left out before the next one that passes, and another after the last.
    """

    def __init__(self, bounds: ProgressBounds) -> None:
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._lock = threading.Lock()
        self._allowed = float(bounds.burst)
        self._since = self._loop.time()
        self._left = bounds.lines
        self._skipped = 0

    def report(self, line: str, left_out: int = 0, /) -> None:
        """Add a line, from any thread, before which `left_out` others came."""
        # What is left out costs the loop nothing: a thread may report a million lines.
        with self._lock:
            self._skipped += left_out
            if not line or not self._passes():
                self._skipped += bool(line)
                return
            skipped, self._skipped = self._skipped, 0
        lines = [_left_out(skipped)] if skipped else []
        lines.append(shown(one_line(line), self._bounds.characters))
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._add, lines)

    async def until(self, task: asyncio.Task[Any]) -> AsyncIterator[str]:
        """Yield the lines as they come, until the task that reports them has ended."""
        task.add_done_callback(lambda _: self._lines.put_nowait(None))
        while (line := await self._lines.get()) is not None:
            yield line
        if self._skipped:
            yield _left_out(self._skipped)

    def _add(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines.put_nowait(line)

    def _passes(self) -> bool:
        now, bounds = self._loop.time(), self._bounds
        earned = (now - self._since) * bounds.per_second
        self._allowed, self._since = min(self._allowed + earned, float(bounds.burst)), now
        if self._allowed < 1.0 or not self._left:
            return False
        self._allowed -= 1.0
        self._left -= 1
        return True


def _left_out(lines: int) -> str:
    return f"[{lines} lines left out]"


def one_line(name: str) -> str:
    """Return a name that can stand in a line: what ends one is spelled out, here or by `shown`."""
    return name.replace("\n", "⟨U+000A⟩")


def shown(text: str, characters: int) -> str:
    """Return text as it may be shown: cut, and nothing in it that cannot be seen."""
    cut = visible(text[: characters + 1])
    return cut if len(cut) <= characters else f"{cut[: characters - 1]}…"
