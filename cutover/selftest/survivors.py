"""Survivors explained: mutants that treat the world and the client as the real stack does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cutover.selftest.mutant_process import Result

Key = tuple[str, str, str]
"""File, function, change: as they are listed; no line, for lines move."""

EXPLAINED: Mapping[Key, str] = {}


def reason_for(result: Result) -> str:
    """Say why nothing could be found in a mutant; "" when nobody knows."""
    file = result.place.partition(":")[0]
    return EXPLAINED.get((file, result.function, result.change), "")
