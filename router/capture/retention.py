"""Room: what captures may take of a local disk, in bytes and in days, and what goes for it."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# Deleting goes a little beyond the cap, so that it is not done at every batch.
_KEPT_SHARE = 0.9
_DATE = re.compile(r"/date=(\d{4}-\d\d-\d\d)/")
_DAY_SECONDS = 86_400


class Room:
    """The files below a root: the oldest go where they take more than `cap` bytes.

    `days` is for how long any are kept, 0 for ever; `wall` gives seconds since the Unix epoch.
    Other processes may write and delete there, too.
    """

    def __init__(self, root: str, cap: int, days: int, wall: Callable[[], float]) -> None:
        self._root = Path(root)
        self._cap = cap
        self._days = days
        self._wall = wall
        self._used = 0
        self.deleted = 0
        self.measure()

    def measure(self) -> None:
        """See what all files take, whoever wrote them."""
        self._used = sum(size for _, size, _ in self._files())

    def take(self, written: int, kept: Collection[str]) -> None:
        """Count bytes that were written; beyond the cap the oldest files go, but for those kept."""
        self._used += written
        if self._used <= self._cap:
            return
        files = self._files()
        self._used = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if self._used <= self._cap * _KEPT_SHARE:
                return
            if path not in kept:
                self._delete(path, size)

    def expire(self) -> None:
        """Delete what is older than it may be: exchanges by their day, blobs by their last use."""
        if not self._days:
            return
        oldest = self._wall() - self._days * _DAY_SECONDS
        first_day = time.strftime("%Y-%m-%d", time.gmtime(oldest))
        for changed, size, path in self._files():
            day = _DATE.search(path)
            if (day[1] < first_day) if day else (changed < oldest):
                self._delete(path, size)

    def _delete(self, path: str, size: int) -> None:
        with suppress(OSError):  # another process was faster
            Path(path).unlink()
            self.deleted += 1
        self._used -= size

    def _files(self) -> list[tuple[float, int, str]]:
        """Give time of change, size and path of every file below the root."""
        found = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = f"{folder}/{name}"
                with suppress(FileNotFoundError):  # as above
                    facts = os.stat(path)  # noqa: PTH116 - thousands of files, once a segment
                    found.append((facts.st_mtime, facts.st_size, path))
        return found
