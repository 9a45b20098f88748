"""Verdicts: how much an equal result proves."""

from __future__ import annotations

from collections import Counter

from compare.report import markdown, page, report_of
from compare.tally import Tally
from compare.verdict import FlowBound, bounds_of, verdict_on
from cutover.selftest.exchanges import Script, exchange
from evidence.intervals import share_at_most
from tests.compare.pairs import tallied


def equal(**pairs: int) -> Tally:
    """Return a tally of so many equal pairs of each flow."""
    total = sum(pairs.values())
    return Tally(exchanges=total, pairs=total, equal=total, by_flow=Counter(pairs))


def test_equal_names_how_much_it_proves() -> None:
    """In every format, with n and what n counts."""
    report = report_of(equal(chat=248), "captures", "ignore")
    proved = (
        "rule of three, 95 % sure: at most 1.2 % of chat (n = 248 exchanges) may differ; turns of "
        "one conversation and repeats are not independent and prove less"
    )
    assert report.verdict.reasons == ("all 248 pairs are equal", proved)
    assert report.bounds == (FlowBound("chat", 248, share_at_most(248), 0.95),)
    assert f"<bdi>{proved}</bdi>" in page(report)
    assert f"- {proved}" in markdown(report)


def test_each_flow_has_its_bound_the_weakest_first() -> None:
    """A thousand pairs of one flow prove nothing of another."""
    tally = equal(chat=1_000, ops=10, session=100, pipeline=5_000)
    assert [bound.flow for bound in bounds_of(tally)] == ["ops", "session", "chat", "pipeline"]
    assert (
        "at most 25.9 % of ops (n = 10 exchanges), 2.95 % of session (n = 100 exchanges), "
        "less of 2 further flows may differ" in verdict_on(tally).reasons[1]
    )


def test_only_an_equal_result_has_bounds() -> None:
    """Zero of n is the case of the rule of three."""
    different = tallied(exchange(), exchange(graph=Script(temperature=0.1), number=1))
    assert report_of(different, "captures", "ignore").bounds == ()
    assert report_of(Tally(), "captures", "ignore").bounds == ()
    torn = equal(chat=100)
    torn.damage["torn"] = 1
    assert report_of(torn, "captures", "ignore").bounds == ()
