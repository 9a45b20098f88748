"""The soak: growth is told from levelling off, rows are whole; no figure is asserted."""

from __future__ import annotations

import pytest

from benchmarks import soak
from benchmarks.harness import QUICK
from benchmarks.soak import ProcessReading, measure, rows_of

MIB = 1 << 20


def readings(*memory: float, descriptors: int = 20) -> list[ProcessReading]:
    """Make readings of one a minute."""
    return [
        ProcessReading(60.0 * minute, round(held * MIB), descriptors)
        for minute, held in enumerate(memory)
    ]


@pytest.mark.parametrize(
    ("memory", "level"),
    [
        pytest.param([100, 140, 160, 160, 160, 160], True, id="warms up, then level"),
        pytest.param([100, 101, 102, 103, 104, 105], False, id="grows to the end"),
        pytest.param([100, 160, 160, 160, 190, 160, 160, 160], True, id="one reading beside it"),
    ],
)
def test_growth_is_judged_by_the_second_half(memory: list[float], *, level: bool) -> None:
    """What a process takes while it warms up is no leak."""
    growth = rows_of(readings(*memory), requests=6)[0]
    assert (growth.name, growth.ok) == ("soak.memory_growth", level)


def test_descriptors_that_stay_open_are_seen() -> None:
    """Those of streams that are open at the moment are forgiven."""
    held = [*readings(*[100] * 5), *readings(100, descriptors=90)]
    assert rows_of(held, requests=6)[-1].ok is False


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_soak_gives_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All flows, clients that leave and clients that rate, for a second."""
    monkeypatch.setattr(soak, "QUICK_SECONDS", 1.0)
    monkeypatch.setattr(soak, "ROUND_SECONDS", 1.0)
    monkeypatch.setattr(soak, "EVERY", 0.05)
    rows = await measure(QUICK)
    assert [row.name.partition(".")[0] for row in rows] == ["soak"] * 4
    assert all(row.value >= 0 or row.name == "soak.memory_growth" for row in rows)
