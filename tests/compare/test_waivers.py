"""Waivers: what they hide, what they do not, and how they stand in the report."""

from __future__ import annotations

from datetime import date

import pytest

from compare.report import markdown, page, report_of
from compare.rules import NO_RULES
from compare.tally import Tally
from compare.verdict import verdict_on
from compare.waivers import Waiver, Waivers, waivers_of, with_waiver
from contract.declarations import DeclarationRefused
from cutover.selftest.exchanges import Script, exchange
from tests.compare.pairs import tallied

TODAY = date(2026, 11, 22)
COLD, LATER = Script(system="冷"), Script(temperature=0.1)
WAIVER = Waiver("Ann", "agreed", date(2026, 12, 1))
FILE = """\
# What we accept. Ask the chat team before you add to it.

[waiver.0123456789ab]  # the old greeting
owner = "Bo"
# until the new prompt is out
reason = "greeting"
until = 2026-12-31

# the last one
[waiver.ba9876543210]
owner = "Chen"
reason = "a \\"quoted\\" reason"
until = 2027-01-31
flow = "chat"
"""


def tally_of(*graphs: Script) -> Tally:
    """Compare legacy as it is with some scripts."""
    pairs = [exchange(Script(), graph, number=k) for k, graph in enumerate(graphs)]
    return tallied(*pairs)


def ids(tally: Tally) -> list[str]:
    """List the ids of what was found."""
    return [cluster.id for cluster in tally.clusters.ordered()]


def waivers(*found: str, waiver: Waiver = WAIVER) -> Waivers:
    """Waive findings as of today."""
    return Waivers(TODAY, dict.fromkeys(found, waiver))


def test_parity_is_said_only_when_no_unwaived_cause_is_left() -> None:
    """One of two is not enough."""
    tally = tally_of(COLD, LATER, Script())
    one, two = ids(tally)
    assert verdict_on(tally, waivers(one)).label == "different"
    verdict = verdict_on(tally, waivers(one, two))
    assert (verdict.label, verdict.sentence) == ("waived", "parity modulo 2 waivers")
    assert verdict.reasons[0] == "2 of 3 pairs differ, from 2 causes, waived"


def test_causes_that_were_not_kept_cannot_be_waived() -> None:
    """What lies beyond the bound is unknown."""
    tally = tally_of(COLD)
    tally.clusters.overflow = 1
    assert verdict_on(tally, waivers(*ids(tally))).label == "different"


@pytest.mark.parametrize(
    ("day", "label"), [(date(2026, 11, 22), "waived"), (date(2026, 11, 21), "different")]
)
def test_a_waiver_holds_up_to_and_with_its_last_day(day: date, label: str) -> None:
    """From the next day on it hides nothing, and the verdict says so."""
    tally = tally_of(COLD)
    held = waivers(*ids(tally), waiver=Waiver("Ann", "agreed", day))
    verdict = verdict_on(tally, held)
    assert verdict.label == label
    assert any("expired on 2026-11-21" in reason for reason in verdict.reasons) == (
        label == "different"
    )


def test_a_waiver_for_another_flow_hides_nothing() -> None:
    """An id is that of a signature; flows may share it."""
    tally = tally_of(COLD)
    elsewhere = waivers(*ids(tally), waiver=Waiver("Ann", "agreed", TODAY, "ops"))
    assert verdict_on(tally, elsewhere).label == "different"


def test_every_waiver_is_in_the_report_with_its_hits() -> None:
    """In force, unused and expired; what is waived stays visible."""
    tally = tally_of(COLD, COLD, LATER)
    one, two = ids(tally)
    held = Waivers(
        TODAY, {one: WAIVER, two: Waiver("Bo", "old", date(2026, 1, 1)), "0" * 12: WAIVER}
    )
    report = report_of(tally, "captures", "ignore", NO_RULES, held)
    assert [(w.id, w.standing, w.exchanges) for w in report.waivers] == sorted(
        [(one, "in force", 2), (two, "expired", 1), ("0" * 12, "unused", 0)]
    )
    assert [(c.waived, c.waiver and c.waiver.owner) for c in report.clusters] == [
        (False, "Bo"),
        (True, "Ann"),
    ]
    for said in (markdown(report), page(report)):
        assert all(word in said for word in ("Ann", "agreed", "2026-12-01", "expired", "unused"))


def test_a_file_is_read_back() -> None:
    """Ids, dates, flows."""
    read = waivers_of(FILE, "waivers.toml")
    assert read["0123456789ab"] == Waiver("Bo", "greeting", date(2026, 12, 31))
    assert read["ba9876543210"].flow == "chat"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[waivers.x]", "f: waivers: unknown key; did you mean 'waiver'?"),
        ("[waiver.xyz]\nowner='a'\nreason='b'\nuntil=2026-01-01", "'xyz' is no finding id"),
        (
            "[waiver.0123456789ab]\nowner='a'\nreason='b'\nuntill=2026-01-01",
            "f: waiver.0123456789ab.untill: unknown key; did you mean 'until'?",
        ),
        ("[waiver.0123456789ab]\nowner='a'\nreason='b'\nuntil='soon'", "waiver.0123456789ab.until"),
        ("[waiver.0123456789ab]\nowner=' '\nreason='b'\nuntil=2026-01-01", "owner is empty"),
        ("[waiver.0123456789ab]\nowner='a'\nreason=''\nuntil=2026-01-01", "reason is empty"),
        ("[waiver.0123456789ab]\nowner='a'\nuntil=2026-01-01", "missing required field `reason`"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text: str, said: str) -> None:
    """With file, key and what is due."""
    with pytest.raises(DeclarationRefused) as refused:
        waivers_of(text, "f")
    assert said in str(refused.value)


def test_a_waiver_is_added_behind_what_there_is() -> None:
    """Nothing else changes, not even a comment."""
    text = with_waiver(FILE, "f", "a" * 12, WAIVER, replace=False)
    assert text.startswith(FILE)
    assert waivers_of(text, "f") == waivers_of(FILE, "f") | {"a" * 12: WAIVER}


@pytest.mark.parametrize("reason", ['say "no"\n[waiver.x]', "\\ \x7f \x00 \t", "中文，「好」", "#"])
def test_any_words_can_be_written(reason: str) -> None:
    """Quotes, brackets, controls and line ends stay text."""
    waiver = Waiver("Ann", reason, TODAY, "chat")
    text = with_waiver("", "f", "a" * 12, waiver, replace=False)
    assert waivers_of(text, "f") == {"a" * 12: waiver}
    again = with_waiver(text, "f", "b" * 12, WAIVER, replace=False)
    assert waivers_of(again, "f")["a" * 12] == waiver


def test_a_second_waiver_needs_to_be_asked_for() -> None:
    """The first owner is named."""
    with pytest.raises(DeclarationRefused, match="'Bo' has waived it until 2026-12-31"):
        with_waiver(FILE, "f", "0123456789ab", WAIVER, replace=False)


def test_replacing_keeps_comments_and_order() -> None:
    """Only the words of that waiver are new."""
    text = with_waiver(FILE, "f", "0123456789ab", WAIVER, replace=True)
    assert list(waivers_of(text, "f")) == ["0123456789ab", "ba9876543210"]
    assert waivers_of(text, "f")["0123456789ab"] == WAIVER
    for comment in ("# the old greeting", "# until the new prompt is out", "# the last one"):
        assert comment in text


@pytest.mark.parametrize(
    "text",
    [
        'waiver = {0123456789ab = {owner = "a", reason = "b", until = 2026-01-01}}',
        '[waiver.0123456789ab]\nowner = "a"\nreason = """x\n[y]\n"""\nuntil = 2026-01-01',
    ],
)
def test_a_file_written_in_an_unusual_way_is_left_alone(text: str) -> None:
    """Better no edit than a wrong one."""
    with pytest.raises(DeclarationRefused, match="by hand"):
        with_waiver(text, "f", "0123456789ab", WAIVER, replace=True)
