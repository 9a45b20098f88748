"""Files written whole: a reader sees the old file or the new one, also after a crash."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(
    path: Path, mode: int | None = None, *, exclusive: bool = False
) -> Iterator[BinaryIO]:
    """Yield a file that takes its place at once when the block ends, or not at all.

    Processes may write it concurrently. `mode` holds before the first byte. Raises `OSError`;
    `FileExistsError` where there is one already and it is to be `exclusive`.
    """
    if exclusive and path.exists():
        raise FileExistsError(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    descriptor = os.open(beside, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)  # what the process masks, too
            yield file
            file.flush()
            os.fsync(descriptor)
        if exclusive:
            path.hardlink_to(beside)
        else:
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(
    path: Path, content: bytes, mode: int | None = None, *, exclusive: bool = False
) -> None:
    """Write a `whole_file` of this content."""
    with whole_file(path, mode, exclusive=exclusive) as file:
        file.write(content)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder: one on a file of it would be lost with its replacement."""
    held = os.open(folder, os.O_RDONLY)
    try:
        flock(held, LOCK_EX)
        yield
    finally:
        os.close(held)
