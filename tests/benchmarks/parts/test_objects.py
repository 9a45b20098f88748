"""What the bench of object stores measures is what it says."""

from __future__ import annotations

import pytest

from benchmarks.parts import objects
from effects.places import Place


@pytest.mark.slow
@pytest.mark.untraced
def test_every_exchange_is_in_one_of_the_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is left in memory."""
    monkeypatch.setattr(objects, "EXCHANGES", 80)
    monkeypatch.setattr(objects, "OBJECT_BYTES", 50_000)
    stored, puts, ratio = objects.measure(1)
    assert (stored.name, puts.name, ratio.name) == (
        "objects.bytes",
        "objects.puts",
        "objects.over_disk",
    )
    # The batch that fills an object is in it; the last one holds the rest.
    assert 1 <= puts.value <= stored.value * 80 / 50_000 + 1
    assert not Place(objects.PLACE).below(Place(objects.PLACE).root)
