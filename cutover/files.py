"""Files written whole: a reader sees the old file or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file at once, or leave it as it was; raises `OSError`.

    Two commands may write it concurrently.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
