"""The place of an SQLite file: whether what stands there is still the file that is open."""

from __future__ import annotations

import os
from contextlib import suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from time import monotonic
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int] | None

LOOK_S = 1.0
"""Seconds between two looks: what is written in between may go with a file that was removed."""


class Place:
    """Where a file was opened; a file that was never there (`:memory:`) is never lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._log = Path(f"{path}-wal")
        self._was: Identity = None
        self._log_was: Identity = None
        self._looks = 0.0

    def taken(self) -> None:
        """The file there has just been opened."""
        self._was, self._log_was = _identity(self._path), _identity(self._log)
        self._looks = monotonic() + LOOK_S

    def lost(self) -> bool:
        """Whether another file is there by now, or none."""
        if (now := monotonic()) < self._looks:
            return False
        self._looks = now + LOOK_S
        return self._was is not None and _identity(self._path) != self._was

    def clear(self) -> None:
        """Remove the log of the file that was: it would be read into another that is there now.

        Several processes may be about to: the lock is on the old log, so nobody removes a new one.
        """
        if _identity(self._path) == self._was:
            return  # it is back
        with suppress(OSError), self._log.open("rb") as log:
            flock(log, LOCK_EX)
            if self._log_was is not None and _identity(self._log) == self._log_was:
                self._log.unlink()
                Path(f"{self._path}-shm").unlink()


def _identity(path: Path) -> Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - four times as fast
    except OSError:
        return None
    return found.st_dev, found.st_ino
