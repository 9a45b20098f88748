"""The bench of shadows: shares from two looks at the ledger, the quieter half, rows."""

from __future__ import annotations

from benchmarks.harness import LoadedPair, quieter, rise_row
from benchmarks.shadows.alongside import Pressed, ShadowLedger, ShadowLine, rows
from loadtests.rows import LoadRow


def row(first: float) -> LoadRow:
    """Make a whole stream whose first text came after so many milliseconds."""
    after = round(first * 1_000_000)
    return LoadRow(
        run=0,
        stack="s",
        flow="chat",
        message_id="m",
        scheduled=0,
        sent=0,
        first_token=after,
        ended=after,
        ending="complete",
    )


def ledger(open_: int = 0, **states: int) -> ShadowLedger:
    """Make a ledger."""
    return ShadowLedger(open_, tuple(ShadowLine(state, count) for state, count in states.items()))


def test_a_share_is_of_all_that_was_asked_since() -> None:
    """What is still open was not compared."""
    before, after = ledger(compared=10), ledger(2, compared=16, dropped=2)
    assert after.share_since(before) == 60.0
    assert before.share_since(before) == 0.0


def test_the_quieter_half_counts() -> None:
    """Rounded up, whatever was measured meanwhile."""
    pairs = [LoadedPair([], [], others) for others in (0.5, 0.1, 0.3)]
    assert [pair.others for pair in quieter(pairs)] == [0.1, 0.3]


def test_on_a_busy_machine_nobody_can_tell() -> None:
    """Unless the whole interval is on one side of the target."""
    near = [LoadedPair([row(200.0)] * 20, [row(200.0 + more)] * 20, 0.6) for more in (0.0, 9.0)]
    far = [LoadedPair([row(200.0)] * 20, [row(290.0)] * 20, 0.6)]
    assert rise_row("a", near, "ttft", 2.0, "here").ok is None
    assert rise_row("a", near, "ttft", 2.0, "here").how.startswith("cannot tell")
    assert rise_row("a", far, "ttft", 2.0, "here").ok is False


def test_rows_tell_rise_shares_and_what_is_lost() -> None:
    """Half the work in the shadow is half the capacity."""
    pair = LoadedPair([row(200.0)] * 20, [row(201.0)] * 20, 0.1)
    found = {one.name: one for one in rows([pair], 96.0, Pressed(2.0, 4.0, 50.0), 300.0)}
    rise = found["shadow.p95_ttft_rise_at_a_third"]
    assert (rise.value, rise.ok) == (1.0, True)
    assert found["shadow.compared_at_a_third"].ok
    assert found["shadow.capacity_lost_at_two_thirds"].value == 50.0
    assert found["shadow.compared_at_two_thirds"].value == 50.0
