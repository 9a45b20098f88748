"""The ledger: counts, pages, and what a reset leaves alone."""

import msgspec

from loadtests.simulator import RequestLedger


def test_requests_are_counted_by_how_they_end() -> None:
    """Open ones are in flight."""
    ledger = RequestLedger()
    records = [ledger.open("d", "m", stream=True) for _ in range(3)]
    records[0].sent(5)
    ledger.close(records[0], "completed")
    ledger.close(records[1], "cancelled", lost_ns=records[1].started_ns)
    counts = ledger.counts()
    assert (counts["total"], counts["in_flight"], counts["chunks"]) == (3, 1, 5)
    assert (counts["completed"], counts["cancelled"]) == (1, 1)
    assert counts["by_digest"] == {"d": 3}
    assert ledger.attempts("d") == 3
    assert records[0].started_ns <= records[0].first_ns <= records[0].ended_ns
    assert records[1].noticed_us is not None


def test_requests_from_before_a_reset_are_not_counted_after_it() -> None:
    """Their end would otherwise make the number in flight negative."""
    ledger = RequestLedger()
    before = ledger.open("d", "m", stream=True)
    ledger.reset()
    ledger.close(before, "completed")
    counts = ledger.counts()
    assert (counts["total"], counts["in_flight"], counts["completed"]) == (0, 0, 0)


def test_records_come_in_pages() -> None:
    """At most a thousand at a time, from a number on."""
    ledger = RequestLedger()
    for _ in range(1_500):
        ledger.open("d", "m", stream=False)
    first = msgspec.to_builtins(ledger.page(0))
    second = msgspec.to_builtins(ledger.page(first["next"]))
    assert (len(first["records"]), first["next"]) == (1_000, 1_000)
    assert (len(second["records"]), second["next"]) == (500, 1_500)
    assert ledger.page(1_500) == {"records": [], "next": 1_500}
