"""Scenes drawn cases seldom play: each was added because some mutant behaved in all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutover.selftest.case import Case

SCENES: tuple[Case, ...] = ()
