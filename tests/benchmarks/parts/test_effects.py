"""The bench of `@effect`: what it measures is on the tape, and outside of an exchange is not."""

from __future__ import annotations

import pytest

from benchmarks.parts.effects import measure

pytestmark = pytest.mark.slow


async def test_both_rows_are_measured_against_their_targets() -> None:
    """With few calls; the figures themselves are the bench's."""
    rows = await measure(3)
    targets = {row.name: row.target for row in rows}
    assert targets == {"effect.in_process": 30.0, "effect.outside_an_exchange": 1.0}
