"""The bench of takeovers: what counts as whole, and the rows."""

from __future__ import annotations

from benchmarks.takeover import CRASHES, StepEvent, Stream, crash_of, rows_of

BEGUN = (StepEvent("ACCEPT"), StepEvent("SEND", "It is"))
WHOLE = (*BEGUN, StepEvent("SUCCESS", "It is 84."), StepEvent("END"))
MS = 1_000_000


def test_a_text_is_whole_in_one_stream_that_began_and_ended_once() -> None:
    """A second prologue, a missing end, or nothing at all is seen."""
    assert Stream(WHOLE, None).text == "It is 84."
    assert Stream((StepEvent("ACCEPT"), *WHOLE), None).text == ""
    assert Stream(WHOLE[:-1], None).text == ""
    assert Stream((), None).text == ""


def test_a_stream_counts_as_whole_with_the_text_of_no_crash() -> None:
    """And only one with a gap was taken over."""
    whole, other = Stream(WHOLE, None), Stream((*BEGUN, StepEvent("END")), 9 * MS)
    pairs = [(Stream(WHOLE, 5 * MS), whole), (whole, whole), (other, whole), (other, other)]
    rows = {row.name: row for row in rows_of(pairs, 9)}
    assert [rows[name].value for name in ("takeover.whole", "takeover.taken_over")] == [2, 3]
    assert not any(row.ok for row in rows.values())
    assert rows["takeover.gap_p50"].value == 9


def test_crashes_strike_every_event() -> None:
    """From the first to the last that is drawn."""
    assert {crash_of(f"m-{number}") for number in range(1_000)} == set(range(1, CRASHES + 1))
