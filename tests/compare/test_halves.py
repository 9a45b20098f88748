"""The runs of an exchange in several segments: found, counted once, and told from lost ones."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compare.captures import Question, compare_captures
from compare.input import captures as reading
from compare.noise import read_noise
from compare.report import report_of
from compare.report.document import encode_report
from compare.tally import Tally
from compare.verdict import verdict_on
from contract.flows import SPECS
from contract.records import ErrorRecord, RunRecord, ShadowState
from cutover.selftest.exchanges import Script, batch, exchange, store

ASKED = Question(SPECS)
NEVER = Script(final="Never.")
MANY = 9


def runs_of(number: int, state: ShadowState = "due") -> tuple[RunRecord, RunRecord]:
    """Make the runs of an exchange; with a `state` other than due, the second does not come."""
    serving, shadow = exchange(graph=NEVER if number % 3 else None, number=number)
    if state != "due":
        shadow = replace(shadow, outcome="cancelled", error=ErrorRecord("stopping"), frames=())
        shadow = replace(shadow, plays=(), shadow=state)
    return replace(serving, shadow="due"), shadow


def spread(folder: Path, runs: Sequence[RunRecord], segments: Sequence[int]) -> Path:
    """Store each run in a segment, in the order given."""
    for name, group in groupby(zip(segments, runs, strict=True), key=lambda it: it[0]):
        lines = [(run,) for _, run in group]
        store(folder, batch(*lines[:2]), *map(batch, lines[2:]), name=f"{name:03}.jsonl.zst")
    return folder


def counts(tally: Tally) -> dict[str, object]:
    """Return what a report counts."""
    return {
        "exchanges": tally.exchanges,
        "pairs": (tally.pairs, tally.equal, tally.different),
        "clusters": {key: one.exchanges for key, one in tally.clusters.by_key.items()},
        "left out": dict(tally.not_comparable),
        "missing": tally.missing,
        "damage": dict(tally.damage),
        "times": {series: sorted(times) for series, times in tally.times.items()},
        "seen": (tally.first_seen, tally.last_seen),
    }


@given(
    states=st.lists(
        st.sampled_from(["due", "due", "dropped", "cancelled", "lost", "lone"]), max_size=MANY
    ),
    seed=st.integers(0, 1 << 16),
)
def test_where_runs_stand_changes_nothing(states: list[str], seed: int) -> None:
    """In any order over any segments, the tally is that of runs that stand side by side."""
    known: dict[str, ShadowState] = {"dropped": "dropped", "cancelled": "cancelled"}
    beside: list[RunRecord] = []
    for number, state in enumerate(states):
        serving, shadow = runs_of(number, known.get(state, "due"))
        beside += {"lost": (serving,), "lone": (shadow,)}.get(state, (serving, shadow))
    order = random.Random(seed)
    apart = order.sample(beside, len(beside))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
        whole = spread(Path(one), beside, [0] * len(beside))
        split = spread(Path(several), apart, sorted(order.choices(range(4), k=len(apart))))
        if not beside:
            return
        expected = compare_captures(str(whole), ASKED)
        assert counts(compare_captures(str(split), ASKED)) == counts(expected)
    assert expected.pairs == states.count("due")
    assert expected.missing == states.count("lost") + states.count("lone")
    assert expected.not_comparable["its second run was dropped (stopping)"] == states.count(
        "dropped"
    )


def scattered(folder: Path) -> Path:
    """Store a kill's captures: shadows in later segments, some nowhere, some that were dropped."""
    served = [runs_of(number, "dropped" if number == 7 else "due") for number in range(MANY)]
    first = [serving for serving, _ in served]
    second = [shadow for number, (_, shadow) in enumerate(served) if number != 5]
    return spread(folder, [*first, *second], [0] * 4 + [1] * 7 + [2] * 4 + [3] * 2)


@pytest.mark.slow
def test_several_processes_pair_what_one_does(tmp_path: Path) -> None:
    """To the byte of the report; the one that is missing is named, and the dropped one is not."""
    place = str(scattered(tmp_path))
    alone, shared = (compare_captures(place, ASKED, processes=count) for count in (1, 2))
    assert encode_report(report_of(shared, "captures", "ignore")) == encode_report(
        report_of(alone, "captures", "ignore")
    )
    assert (alone.exchanges, alone.pairs, alone.missing) == (MANY, MANY - 2, 1)
    assert dict(alone.not_comparable) == {
        "its second run was started and is missing": 1,
        "its second run was dropped (stopping)": 1,
    }


def test_too_many_missing_runs_are_no_pass(tmp_path: Path) -> None:
    """A kill is seen; up to one in a hundred may be missing."""
    runs = [run for number in range(0, 30, 3) for run in runs_of(number)]
    whole, lost = tmp_path / "whole", tmp_path / "lost"
    assert verdict_on(compare_captures(str(spread(whole, runs, [0] * 20)), ASKED)).label == "equal"
    spread(lost, runs[::2] + runs[3::2], [0] * 10 + [1] * 9)
    assert verdict_on(compare_captures(str(lost), ASKED)).label == "incomplete"


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 2, 3]], ids=["beside", "behind"])
def test_copies_of_segments_count_once(tmp_path: Path, order: list[int]) -> None:
    """Wherever the copies stand, no run of theirs is missing, and each is told as a duplicate."""
    serving, shadow = runs_of(0)
    copies = [serving, shadow, serving, shadow]
    place = spread(tmp_path, [copies[at] for at in order], range(4))
    found = compare_captures(str(place), ASKED)
    assert (found.exchanges, found.pairs, found.missing) == (1, 1, 0)
    assert set(found.damage) == {"duplicate"}


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are counted as missing, and the rest is paired."""
    monkeypatch.setattr(reading, "HELD_BYTES", 1)
    pairs = [runs_of(number) for number in range(3)]
    runs = [*(serving for serving, _ in pairs), *(shadow for _, shadow in pairs)]
    found = compare_captures(str(spread(tmp_path, runs, [0, 1, 2, 3, 4, 5])), ASKED)
    assert found.missing == found.exchanges
    late = compare_captures(str(spread(tmp_path / "b", [*pairs[0]], [0, 1])), ASKED)
    assert (late.pairs, late.missing) == (1, 0)


def test_noise_is_read_over_segments(tmp_path: Path) -> None:
    """A shadow in another segment is a run of the same message."""
    serving, shadow = runs_of(0)
    place = spread(tmp_path, [serving, shadow], [0, 1])
    assert read_noise(str(place), [], SPECS).study.left_out == {
        "graph was played the model's answers": 1
    }
