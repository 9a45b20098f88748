"""The place of an SQLite file: whether what stands there is still the file that is open."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock, lockf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Identity: TypeAlias = tuple[int, int] | None

LOOK_S = 1.0
"""Seconds between two looks: what is written in between may go with a file that was removed."""
MOVING: Final = Lock()
"""Held while a store opens its file or leaves it: see what is said of `_open`."""

_SHARED_FIRST: Final = 0x40000002
_SHARED_SIZE: Final = 510
"""The bytes of a file that everybody who has it open holds a lock on, as SQLite does."""

_open: Counter[Identity] = Counter()
"""The files this process has open: to open and close one once more would drop its locks on it."""


class Place:
    """Where a file was opened; a file that was never there (`:memory:`) is never lost."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file = self._log = self._index = self._path
        self._was: Identity = None
        self._log_was: Identity = None
        self._index_was: Identity = None
        self._looks = 0.0

    def taken(self) -> None:
        """The file there has just been opened."""
        # A link may lead elsewhere by and by: the log is beside the file itself.
        self._file = Path(os.path.realpath(self._path))
        self._log, self._index = Path(f"{self._file}-wal"), Path(f"{self._file}-shm")
        self._was, self._log_was = _identity(self._file), _identity(self._log)
        self._index_was = _identity(self._index)
        self._looks = monotonic() + LOOK_S
        _open[self._was] += 1

    def left(self) -> None:
        """The file that was opened is closed."""
        _open[self._was] -= 1

    def lost(self) -> bool:
        """Whether another file is there by now, or none."""
        if (now := monotonic()) < self._looks:
            return False
        self._looks = now + LOOK_S
        return self._was is not None and _identity(self._path) != self._was

    @contextmanager
    def parting(self) -> Iterator[bool]:
        """Keep others out of what is there now; False where somebody has it open already.

        They may have taken the old log for its own, or share the index of the old one with us: to
        empty or remove that is to lose what they have written. Hold `MOVING`.
        """
        now = _identity(self._file)
        if now is None or _identity(self._index) != self._index_was:
            yield True
            return
        if _open[now]:
            yield False
            return
        with _locked(self._file) as alone:
            yield alone

    def clear(self) -> None:
        """Remove the log of the file that was: it would be read into another that is there now.

        Several processes may be about to: the lock is on the old log, so nobody removes a new one.
        Call it while the file that was is still open: until then no other gets its number.
        """
        if _identity(self._file) == self._was:
            return  # it is back
        with suppress(OSError), self._log.open("rb") as log:
            flock(log, LOCK_EX)
            if self._log_was is not None and _identity(self._log) == self._log_was:
                self._log.unlink()
                self._index.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file as SQLite would to have it alone; False where that cannot be."""
    try:
        file = path.open("r+b")
    except OSError:
        yield False
        return
    with file:
        try:
            lockf(file, LOCK_EX | LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError:
            yield False
        else:
            yield True


def _identity(path: Path) -> Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - four times as fast
    except OSError:
        return None
    return found.st_dev, found.st_ino
