"""What the bench of the comparison measures is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parts import compare as module
from benchmarks.parts.compare import QUESTION, deep, differing, peak_bytes, runs_of, store
from compare.captures import compare_captures
from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.flows.chat import CHAT


def _pair(number: int, *, apart: bool) -> Pair:
    pair = pair_of(runs_of(number, differing(number) if apart else None))
    assert isinstance(pair, Pair)
    return pair


@pytest.mark.parametrize("number", range(8))
def test_pairs_are_equal_or_differ_from_one_cause(number: int) -> None:
    """In the streams as DeepDiff sees them, or in the calls."""
    equal, apart = _pair(number, apart=False), _pair(number, apart=True)
    assert len(equal.control.frames) == 52
    assert Comparer(CHAT).compare(equal) == ()
    assert not deep(equal)
    findings = Comparer(CHAT).compare(apart)
    assert len([finding for finding in findings if finding.after is None]) == 1
    assert bool(deep(apart)) == any(finding.layer in {"frames", "text"} for finding in findings)


def test_segments_hold_what_was_stored(tmp_path: Path) -> None:
    """In batches, as the router writes them."""
    path = tmp_path / "flow=chat" / "date=2026-11-21" / "s.jsonl.zst"
    store(path, (runs_of(n, differing(n) if n % 10 == 0 else None) for n in range(120)))
    found = compare_captures(str(tmp_path), QUESTION)
    assert (found.pairs, found.different, dict(found.damage)) == (120, 12, {})


def test_copied_segments_hold_other_exchanges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that each pair is compared: what is read twice counts once."""
    monkeypatch.setattr(module, "PER_FILE", 60)
    place = tmp_path / "flow=chat" / "date=2026-11-21"
    store(place / "0000.jsonl.zst", (runs_of(number, differing(number)) for number in range(60)))
    assert module.copy_segments(place, 180) == 180
    found = compare_captures(str(tmp_path), QUESTION)
    assert (found.pairs, found.different, dict(found.damage)) == (180, 180, {})


def test_the_peak_of_memory_comes_from_the_kernel() -> None:
    """At least what an interpreter takes, at most what a machine has."""
    assert 5e6 < peak_bytes() < 1e11
