"""Metrics are seconds from the scheduled moment, over the rows that may count."""

from __future__ import annotations

import pytest

from loadtests.metrics import METRICS, ObjectiveRefused, goodput, is_good, parse_objective, window
from tests.loadtests.streams import MS, SENT, row


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("ttfb", 0.013),
        ("ttfe", 0.023),
        ("ttft", 0.103),
        ("ttfo", 0.103),
        ("e2el", 0.303),
        ("ttle", 0.313),
        ("icl_max", 0.150),
        ("icl_p95", 0.150),
        ("itl", 0.100),
        ("lag", 0.003),
    ],
)
def test_each_metric_by_hand(name: str, seconds: float) -> None:
    """The row of streams.py, from the moment it was scheduled for."""
    assert METRICS[name].of(row()) == pytest.approx(seconds)


def test_a_cut_stream_has_a_first_word_and_no_last_one() -> None:
    """TTFT was seen; E2EL of a stream that was cut would make it look quick."""
    rows = [row(), row(ending="truncated", terminal=None)]
    assert len(METRICS["ttft"].sample(rows)) == 2
    assert len(METRICS["e2el"].sample(rows)) == 1


def test_a_quick_refusal_improves_nothing() -> None:
    """A 503 in a millisecond is no good TTFB."""
    assert METRICS["ttfb"].sample([row(ending="refused", status=503, headers=MS)]) == []


def test_one_piece_has_no_gap() -> None:
    """ITL and ICL need two contents."""
    single = row(contents=1, gaps=(), last_content=100 * MS)
    assert METRICS["itl"].of(single) is None
    assert METRICS["icl_max"].of(single) is None
    assert is_good(single, [parse_objective("icl_max=1"), parse_objective("ttft=1")])


def test_goodput_counts_complete_requests_that_met_everything() -> None:
    """Two of four, over the time from the first schedule to the last end."""
    slow = row(first_token=900 * MS)
    cut = row(ending="truncated")
    later = row(scheduled=SENT + 686 * MS, sent=SENT + 686 * MS)
    found = goodput([[row(), slow, cut, later]], [parse_objective("ttft=0.5")])
    assert (found.good, found.requests) == (2, 4)
    assert found.window == pytest.approx(1.0)
    assert found.per_second == pytest.approx(2.0)


def test_no_rows_have_no_goodput() -> None:
    """And no division by nothing."""
    assert window([]) == 0.0
    assert goodput([[]]).per_second == 0.0


def test_a_complete_stream_without_words_is_not_good() -> None:
    """TTFT was never reached."""
    assert not is_good(row(first_token=None), [parse_objective("ttft=1")])


@pytest.mark.parametrize("text", ["", "ttft", "ttft=", "speed=1", "ttft=0", "ttft=-1", "ttft=nan"])
def test_a_bad_objective_is_refused(text: str) -> None:
    """With the names there are."""
    with pytest.raises(ObjectiveRefused, match="icl_max"):
        parse_objective(text)
