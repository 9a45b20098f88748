"""The study: what is said of many messages, of few, and of none."""

from __future__ import annotations

import numpy as np
import pytest

from compare.noise.distances import Distances
from compare.noise.study import METHOD, MeasuredMessage, flags_text, study_of, study_text
from evidence.intervals import mean_interval
from evidence.power import needed_for_mean, needed_for_rare


def messages(
    count: int, shift: float, runs: tuple[int, int] = (1, 1), seed: int = 1
) -> list[MeasuredMessage]:
    """Draw messages whose texts differ by chance, the graph's by `shift` more."""
    random = np.random.default_rng(seed)
    again, graph = runs
    drawn = random.beta(4, 6, size=(count, again + graph)) * 0.6
    far = [[Distances(float(d), 0.0, 0.0) for d in row] for row in drawn]
    moved = [[d._replace(text=min(1.0, d.text + shift)) for d in row[again:]] for row in far]
    return [
        MeasuredMessage(f"x-{k}", "chat", tuple(row[:again]), tuple(farther))
        for k, (row, farther) in enumerate(zip(far, moved, strict=True))
    ]


@pytest.mark.slow
def test_the_same_stack_twice_is_within_noise() -> None:
    """With messages enough, and where nothing ever differs too."""
    found = study_of(messages(400, 0.0))
    assert found.reading == "within noise"
    text, tools, structure = found.judgements
    assert text.low < text.difference < text.high < 0.05
    assert (tools.p, tools.difference, structure.p) == (1.0, 0.0, 1.0)


def test_a_planted_shift_exceeds_noise() -> None:
    """Only in the measure it is in."""
    found = study_of(messages(60, 0.15))
    assert found.reading == "exceeds"
    text, tools, structure = found.judgements
    assert (text.reading, tools.reading, structure.reading) == (
        "exceeds",
        "within noise",
        "within noise",
    )
    assert text.low < 0.15 < text.high
    assert text.p <= 0.05 / 3
    assert not text.exact


@pytest.mark.parametrize("count", [1, 3, 5, 30])
def test_few_messages_cannot_tell(count: int) -> None:
    """And it is said how many would; five messages cannot reach 5 % over three measures."""
    found = study_of(messages(count, 0.0 if count == 30 else 0.5))
    assert found.reading == "cannot tell"
    assert all(judged.needed > count for judged in found.judgements)
    assert "messages would" in study_text(found)


def test_no_message_cannot_tell() -> None:
    """No data is not a pass."""
    found = study_of([], {"no run of graph": 3})
    assert (found.reading, found.judgements, found.left_out) == (
        "cannot tell",
        (),
        {"no run of graph": 3},
    )
    assert "no message" in study_text(found)


def test_one_message_is_flagged_only_above_its_own_noise() -> None:
    """Twenty legacy runs of each: the odd one is named, and chance's share stands beside."""
    sound = messages(40, 0.0, runs=(19, 1))
    odd = messages(1, 0.9, runs=(19, 1), seed=5)[0]
    odd = MeasuredMessage("odd", "chat", odd.again, odd.graph)
    text = study_of([*sound, odd]).judgements[0]
    assert text.flaggable == 41
    assert text.named[0].exchange == "odd"
    assert text.by_chance == pytest.approx(41 / 20)
    assert text.flagged <= 8


def test_one_further_run_flags_no_message() -> None:
    """Of two runs each is the farther one half the time."""
    text = study_of(messages(60, 0.4)).judgements[0]
    assert (text.flaggable, text.flagged, text.named) == (0, 0, ())
    assert flags_text(text) == "cannot tell, too few runs of a message"


def test_flows_are_judged_apart() -> None:
    """Holm's method goes over all of them."""
    other = [MeasuredMessage(m.exchange, "agent", m.again, m.graph) for m in messages(60, 0.15)]
    found = study_of([*messages(60, 0.0), *other])
    assert [(j.flow, j.reading) for j in found.judgements if j.reading == "exceeds"] == [
        ("agent", "exceeds")
    ]


def test_equal_messages_give_equal_studies() -> None:
    """In whatever order they come."""
    drawn = messages(50, 0.05)
    assert study_of(drawn) == study_of(drawn[::-1])


@pytest.mark.untraced
@pytest.mark.slow
def test_the_whole_study_errs_in_five_percent() -> None:
    """All three measures at once, under chance alone."""
    random = np.random.default_rng(2)
    wrong = 0
    for _ in range(100):
        drawn = random.random((12, 2, 3))
        null = [
            MeasuredMessage(f"x-{k}", "chat", (Distances(*again),), (Distances(*graph),))
            for k, (again, graph) in enumerate(drawn)
        ]
        wrong += study_of(null).reading == "exceeds"
    assert wrong <= 11


@pytest.mark.slow
def test_intervals_hold_the_mean() -> None:
    """Of skewed values, in 95 % of samples as large as the study asks for."""
    random = np.random.default_rng(3)
    samples = random.beta(2, 6, (150, 60)) - random.beta(2, 4, (150, 60))
    truth = 2 / 8 - 2 / 6
    held = [low <= truth <= high for low, high in map(mean_interval, samples)]
    assert np.mean(held) > 0.88
    assert mean_interval(np.zeros(5)) == (0.0, 0.0)


def test_needed_numbers_are_those_of_the_books() -> None:
    """Cohen's table: d = 0.5, one-sided 5 %, power 80 %: 25; and the rule of three."""
    assert needed_for_mean(1.0, 0.5, 0.05) == 25
    assert needed_for_rare(0.05) == 59


def test_the_method_names_its_sources() -> None:
    """The report names them."""
    said = " ".join(METHOD)
    assert all(name in said for name in ("Pitman", "Holm", "Efron", "Phipson", "Cohen", "Myers"))
