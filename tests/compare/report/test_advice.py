"""Advice: what to do next, one concrete step for each case."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.clusters import Kinds
from compare.input.damage import Damage
from compare.input.selection import Selection
from compare.noise import Noise, study_of
from compare.noise.control import NO_CHECK, ControlCheck
from compare.noise.distances import Distances
from compare.noise.study import MeasuredMessage
from compare.report import markdown, page, report_of
from compare.report.advice import REMEDIES, TABLE, Case, NextStep
from compare.rules import NO_RULES
from compare.tally import Tally, UnselectedExchanges
from compare.verdict import verdict_on
from compare.waivers import Waiver, Waivers
from cutover.selftest.exchanges import Script, exchange
from tests.compare.pairs import tallied

COLD = Script(system="冷")
TOLD = Script(final="又", pieces=("又",))
TODAY = date(2026, 11, 22)
ENOUGH = 299
ROUTER = Path(__file__).resolve().parents[3] / "router"
TORN = Damage("torn", "file:///captures/a.jsonl.zst", "the batch at byte 9 does not end")


def tally_of(pairs: int = ENOUGH, **facts: Any) -> Tally:
    """Return a tally of so many equal pairs of chat, with further facts."""
    tally = Tally(exchanges=pairs, pairs=pairs, equal=pairs, by_flow=Counter(chat=pairs))
    for name, value in facts.items():
        setattr(tally, name, value)
    return tally


def without_pairs(**counts: int) -> Tally:
    """Return a tally of exchanges that could not be compared, for such reasons."""
    return Tally(exchanges=sum(counts.values()), not_comparable=Kinds(counts))


def unshadowed(pairs: int, ledger: str, count: int) -> Tally:
    """Return a tally of equal pairs, and of exchanges whose second run ended there."""
    tally = tally_of(pairs, unshadowed=Kinds({ledger: count}))
    tally.exchanges += count
    tally.not_comparable = Kinds({ledger: count})
    return tally


def damaged(tally: Tally, *damage: Damage) -> Tally:
    """Add damage to a tally."""
    for one in damage:
        tally.damaged(one)
    return tally


def different(graph: Script, **facts: Any) -> Tally:
    """Return the tally of one pair that differs, with further facts."""
    tally = tallied(exchange(graph=graph))
    for name, value in facts.items():
        setattr(tally, name, value)
    return tally


def waiving(tally: Tally, until: date) -> Waivers:
    """Waive all causes until a day."""
    ids = [cluster.id for cluster in tally.clusters.by_key.values()]
    return Waivers(TODAY, dict.fromkeys(ids, Waiver("Ann", "agreed", until)))


def noise_of(messages: int, graph: float) -> Noise:
    """Return the noise of messages in which graph is so far from legacy, and legacy not at all."""
    near, far = Distances(0.0, 0.0, 0.0), Distances(graph, 0.0, 0.0)
    found = [MeasuredMessage(f"x-{n}", "chat", (near,), (far,)) for n in range(messages)]
    return Noise(study_of(found), NO_CHECK)


def advised(tally: Tally, waivers: Waivers | None = None, noise: Noise | None = None) -> NextStep:
    """Return the next step of the report on a tally."""
    report = report_of(tally, "c d", "ignore", NO_RULES, waivers or Waivers(TODAY), noise)
    assert report.next_step is not None
    return report.next_step


NONE_SELECTED = Tally(selection=Selection(since=1), left_out=UnselectedExchanges(5, 0, 0))
CONTROL = ControlCheck(3, 1, ("x-7",))
COPY = Damage("duplicate", "file:///captures/b.jsonl.zst", "exchange 'x-1' was read before")
EXPECTED: list[tuple[Case, NextStep, str]] = [
    ("read", advised(damaged(Tally(), TORN)), "restore or remove file:///captures/a.jsonl.zst"),
    ("read", advised(damaged(tally_of(), TORN)), "then compare again"),
    ("select", advised(NONE_SELECTED), "by `--since`, `--until` or `--configuration`"),
    ("record", advised(Tally()), "`[captures] path`"),
    ("record", advised(Tally(selection=Selection(since=1))), "select other exchanges, or record"),
    ("pair", advised(unshadowed(0, "not_sampled()", 9)), "raise `shadow_percent`: 9 second runs"),
    ("pair", advised(without_pairs(**{"one run only": 2})), "`cutover replay 'c d' --stack graph"),
    ("pair", advised(without_pairs(**{"unknown flow 'team'": 2})), "`--config` with the file"),
    ("pair", advised(without_pairs(cancelled=2)), "most of these cannot: cancelled"),
    ("duplicates", advised(damaged(tally_of(1), COPY, COPY)), "2 duplicates were read"),
    ("missing", advised(tally_of(10, missing=3)), "3 runs were written (SIGTERM and"),
    ("control", advised(tally_of(control=CONTROL)), "differs from itself, as in x-7"),
    ("control", advised(different(COLD, control=CONTROL)), "mend legacy first"),
    ("gateway", advised(different(TOLD, untaped=1)), "the gateway (docs/gateway.md)"),
    ("noise", advised(tally_of(own_answers=9)), "`cutover diff 'c d' --noise AGAIN -o DIR`"),
    ("noise", advised(tally_of(own_answers=9)), "in 9 pairs both stacks asked the model"),
    ("noise", advised(tally_of(own_answers=9), None, noise_of(20, 0.9)), "more than legacy"),
    ("noise", advised(tally_of(own_answers=9), None, noise_of(2, 0.9)), "more messages again"),
    ("cause", advised(different(COLD)), "(Prompt differs, in chat), then mend graph or accept it"),
    ("cause", advised(different(COLD, untaped=1)), "--flow chat --owner NAME --reason WHY"),
    (
        "renew",
        advised(different(COLD), waiving(different(COLD), date(2026, 11, 21))),
        "whose waiver no longer holds, then mend it or renew: `cutover waive",
    ),
    ("fix", advised(different(COLD), waiving(different(COLD), date(2026, 12, 1))), "by 2026-12-01"),
    ("unshadowed", advised(unshadowed(ENOUGH, "dropped(queue_full)", 50)), "`[shadow] queue`"),
    ("unshadowed", advised(unshadowed(ENOUGH, "dropped(budget)", 50)), "raise the budget"),
    ("unshadowed", advised(unshadowed(ENOUGH, "dropped(moon)", 50)), "ended as dropped(moon)"),
    ("more", advised(tally_of(248)), "record 51 more exchanges of chat: 299 without a difference"),
    ("more", advised(unshadowed(248, "not_sampled()", 50)), "(50 were not sampled)"),
    ("folds", advised(tally_of(folds=Counter(absent=3))), "`normalise = false` in diff.toml"),
    ("go on", advised(tally_of()), "raise `langgraph_percent` of chat by one step"),
    ("go on", advised(tally_of(bases=Kinds(replay=1))), "release graph as it is now"),
]


@pytest.mark.parametrize(("case", "step", "text"), EXPECTED)
def test_the_next_step_is_that_of_its_case(case: Case, step: NextStep, text: str) -> None:
    """Named, and concrete enough to be done."""
    assert (step.case, text in step.text) == (case, True), step


def test_findings_that_were_not_kept_are_not_taken_for_waived() -> None:
    """There is no cause left to open, and the verdict is different all the same."""
    tally = different(COLD)
    tally.clusters.overflow = 5
    step = advised(tally, waiving(tally, date(2026, 12, 1)))
    assert (step.case, "5 findings" in step.text) == ("overflow", True)


def test_the_table_of_cases_is_closed() -> None:
    """Every case is in it and in these tests; every verdict ends in one that always applies."""
    cases = {case for rows in TABLE.values() for case, _ in rows}
    assert cases == set(get_args(Case)) == {case for case, *_ in EXPECTED} | {"overflow"}


@given(
    pairs=st.integers(0, 400),
    ledger=st.dictionaries(st.sampled_from([*REMEDIES, "dropped(moon)"]), st.integers(1, 400)),
    damage=st.lists(st.sampled_from([TORN, COPY]), max_size=3),
    missing=st.integers(0, 9),
    live=st.integers(0, 9),
    folds=st.booleans(),
    differs=st.booleans(),
)
def test_there_is_one_step_whatever_was_found(
    pairs: int,
    ledger: dict[str, int],
    damage: list[Damage],
    missing: int,
    live: int,
    folds: bool,
    differs: bool,
) -> None:
    """One line that is a case of the verdict's."""
    tally = tally_of(pairs) if pairs else Tally()
    tally.unshadowed = Kinds(ledger)
    tally.not_comparable = Kinds(ledger)
    tally.exchanges += sum(ledger.values()) + missing
    tally.missing, tally.own_answers = missing, live
    if folds:
        tally.folds["absent"] += 1
    if missing:
        tally.not_comparable.update({"its second run was started and is missing": missing})
    if differs:
        tally.merge(tallied(exchange(graph=COLD)))
    step = advised(damaged(tally, *damage))
    assert step.case in {case for case, _ in TABLE[verdict_on(tally).label]}
    assert step.text == " ".join(step.text.split())


def test_live_answers_are_explained_where_there_are_some() -> None:
    """In two sentences, with the A/A figure where noise was measured."""
    live = tally_of(own_answers=9)
    for noise, figure in (
        (None, "`cutover noise` measures whether"),
        (noise_of(20, 0.9), "Legacy is 0.000 from itself (A/A) and graph 0.900 from legacy"),
    ):
        report = report_of(live, "captures", "ignore", noise=noise)
        assert "in 9 pairs the shadow asked for itself, and what may" in markdown(report)
        assert figure in unescape(re.sub(r"</?code>", "`", page(report)))
        assert "docs/noise.md." in markdown(report)
    untaped = report_of(different(TOLD, untaped=1), "captures", "ignore")
    assert "in 1 pair each stack asked for itself" in markdown(untaped)
    taped = report_of(different(TOLD), "captures", "ignore")
    assert "asked twice" not in markdown(taped) + page(taped)


def test_the_next_step_stands_in_every_format() -> None:
    """Commands and keys as code, foreign text as text."""
    report = report_of(unshadowed(0, "not_sampled()", 9), "captures", "ignore")
    assert "**Next:** `raise" not in markdown(report)
    assert "**Next:** raise `shadow_percent`: 9 second runs ended as not\\_sampled()" in markdown(
        report
    )
    assert "<b>Next</b> <bdi>raise <code>shadow_percent</code>: 9 second" in page(report)


def test_the_page_leads_to_the_cause_to_open() -> None:
    """By a link within the page."""
    html = page(report_of(different(COLD), "captures", "ignore"))
    [anchor] = re.findall(r'<a href="#(c-chat-\w+)">Go to it</a>', html)
    assert f'id="{anchor}"' in html
    assert "Go to it" not in page(report_of(tally_of(), "captures", "ignore"))


def test_every_key_that_is_advised_exists() -> None:
    """A remedy that names no key of the configuration is of no use."""
    text = (ROUTER / "config" / "schema.py").read_text("utf-8")
    for remedy in REMEDIES.values():
        for key in re.findall(r"`(?:\[\w+\] )?(\w+)", remedy):
            assert re.search(rf"^    {key}: ", text, re.MULTILINE), key


def test_every_reason_of_the_ledger_has_a_remedy() -> None:
    """Of those for which a shadow is dropped: in the code that drops it."""
    text = (ROUTER / "shadow" / "shadows.py").read_text("utf-8")
    reasons = set(re.findall(r'"dropped", "(\w+)"', text))
    assert reasons <= {it[8:-1] for it in REMEDIES if it.startswith("dropped(")}
