"""Versions of a store's tables: which steps are due, and which tables are too new to be touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Statement = TypeVar("Statement")

Migrations = tuple[tuple[str, ...], ...]
"""For every version of a store's tables, the statements that lead there from the one before."""


class StoreNotOpened(CutoverError):
    """A store cannot be used: it is no database, out of reach, or newer than the code."""

    def __init__(self, where: str | Path, reason: str) -> None:
        super().__init__(f"cannot open the store {str(where)!r}: {reason}")


def due(
    where: str | Path,
    store: str,
    version: int,
    migrations: Sequence[Sequence[Statement]],
) -> list[Statement]:
    """Give the statements that are due; raises `StoreNotOpened` where the tables are newer."""
    if version > len(migrations):
        reason = f"its {store!r} is version {version}, this code knows {len(migrations)}"
        raise StoreNotOpened(where, reason)
    return [statement for step in migrations[version:] for statement in step]
