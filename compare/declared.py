"""Declarations of a comparison, read from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.declarations import DeclarationRefused

if TYPE_CHECKING:
    from pathlib import Path


def read_text(path: Path) -> str:
    """Read a file, without a byte order mark; raises `DeclarationRefused` when it cannot be."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as trouble:
        raise DeclarationRefused(str(path), "", str(trouble)) from trouble
