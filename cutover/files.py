"""Whole files: written beside their place and put there at once, so nobody reads half of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file, or leave what is there as it was; raises `OSError`.

    A reader meanwhile sees the old file or the new one, also where two commands write it at once.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
