"""The fuzzer: sound readers pass; one that raises, hangs or reads pieces otherwise fails."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from benchmarks.parts import fuzz
from benchmarks.parts.fuzz import READERS, FuzzedReader, Pieces, cuts, damaged


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_what_is_written_can_be_read(reader: FuzzedReader) -> None:
    """Else the inputs would be refused at once, and nothing behind that would be tried."""
    found = str(reader.read([reader.seeds[0]]))
    assert found
    assert "broken" not in found
    assert "Fault" not in found


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_readers_bear_damaged_input(reader: FuzzedReader) -> None:
    """A few here, a million in the bench."""
    failed, rate = fuzz.fuzz(reader, 100)
    assert failed.ok, failed.how
    assert rate.value > 0


def _hang(_: Pieces) -> None:
    while True:
        time.monotonic()


@pytest.mark.parametrize(
    ("read", "seen"),
    [
        pytest.param(
            lambda pieces: b"".join(pieces).decode("ascii"), "UnicodeDecodeError", id="raises"
        ),
        pytest.param(lambda pieces: len(list(pieces)), "read otherwise in pieces", id="pieces"),
        pytest.param(_hang, "ReaderHung", id="hangs"),
    ],
)
def test_failures_are_counted(
    read: Callable[[Pieces], object], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is in the row."""
    if read is _hang:
        monkeypatch.setattr(fuzz, "PATIENCE_S", 0.001)
    row = fuzz.fuzz(FuzzedReader("odd", read, (b"abc \xff",)), 20)[0]
    assert not row.ok
    assert seen in row.how


def test_a_seed_gives_the_same_inputs_again() -> None:
    """A failure can be looked into."""
    drawn = [
        [damaged(chance, READERS[0].seeds) for _ in range(20)]
        for chance in (random.Random(3), random.Random(3))
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 10


def test_cutting_loses_nothing() -> None:
    """Pieces are the input."""
    chance = random.Random(1)
    assert all(b"".join(cuts(chance, b"abcdef")) == b"abcdef" for _ in range(50))
