"""The soak: growth is told from levelling off, rows are whole; no figure is asserted."""

from __future__ import annotations

import random

import pytest

from benchmarks import soak
from benchmarks.harness import QUICK
from benchmarks.soak import ProcessReading, measure, rows_of

MIB = 1 << 20
SECONDS, EVERY, RATE = 3_600, 5, 10


def readings(*memory: float) -> list[ProcessReading]:
    """Make readings of one a minute."""
    return [
        ProcessReading(60.0 * minute, round(held * MIB), 20) for minute, held in enumerate(memory)
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


def an_hour(draw: random.Random, leak: float) -> list[ProcessReading]:
    """Draw an hour of ten requests a second; of each, `leak` is the chance to keep a descriptor.

    Streams of half a second are open when the descriptors are counted, of whichever requests.
    """
    kept, found = 0, []
    for reading in range(SECONDS // EVERY):
        kept += sum(draw.random() < leak for _ in range(RATE * EVERY))
        streams = sum(draw.random() < 0.5 / EVERY for _ in range(RATE * EVERY))
        found.append(ProcessReading(float(EVERY * reading), 100 * MIB, 30 + kept + streams))
    return found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("leak", "flat"), [(0.0, True), (0.001, False)])
def test_a_leak_is_told_from_open_streams(seed: int, leak: float, *, flat: bool) -> None:
    """One descriptor kept of a thousand requests is found; streams that come and go are none."""
    rows = rows_of(an_hour(random.Random(seed), leak), RATE * SECONDS)
    growth = next(row for row in rows if row.name == "soak.descriptor_growth")
    assert growth.ok is flat


def test_a_short_run_cannot_tell_a_leak() -> None:
    """A minute of it gives neither a pass nor a failure."""
    minute = an_hour(random.Random(0), 0.0)[: 60 // EVERY]
    assert rows_of(minute, RATE * 60)[3].ok is None


@pytest.mark.slow
@pytest.mark.sockets
async def test_the_soak_gives_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All flows, clients that leave and clients that rate, for a second."""
    monkeypatch.setattr(soak, "QUICK_SECONDS", 1.0)
    monkeypatch.setattr(soak, "ROUND_SECONDS", 1.0)
    monkeypatch.setattr(soak, "EVERY", 0.05)
    rows = await measure(QUICK)
    assert [row.name.partition(".")[0] for row in rows] == ["soak"] * 5
    assert all(row.value >= 0 or row.name.endswith("growth") for row in rows)
