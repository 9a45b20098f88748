"""What may be said of what was read, and what a team has accepted of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from scipy import stats

from compare.verdict import Read, Verdict, at_most, decide
from compare.waivers import Waiver, WaiversRefused, read_waivers, waive

TODAY = date(2026, 11, 28)


def verdict(
    damage: dict[str, int] | None = None,
    compared: int = 500,
    different: int = 0,
    accepted: int = 0,
    **skipped: int,
) -> Verdict:
    """Return the verdict on ten files and a thousand lines."""
    read = Read(files=10, lines=1000, damage=damage or {})
    return decide(read, compared, different, accepted, skipped)


VERDICTS = {
    "all equal": (verdict(), "equal", 0),
    "one differs": (verdict(different=1), "different", 1),
    "what differs is waived": (verdict(different=9, accepted=9), "equal", 0),
    "one more is not": (verdict(different=9, accepted=8), "different", 1),
    "nothing": (verdict(compared=0), "nothing", 3),
    "nothing was played": (verdict(compared=0, not_played=400), "nothing", 3),
    "some were not played": (verdict(not_played=400), "equal", 0),
    "duplicates are passed over": (verdict({"duplicate": 400}), "equal", 0),
    "a torn file": (verdict({"torn": 1}), "incomplete", 4),
    "a file that is gone, and a difference": (verdict({"gone": 1}, different=1), "different", 1),
    "a hundredth is missing": (verdict(lines_missing=5), "equal", 0),
    "more is missing": (verdict(lines_missing=6), "incomplete", 4),
    "more is damaged": (verdict(damaged=6), "incomplete", 4),
    "more is of no record": (verdict({"foreign": 6}), "incomplete", 4),
    "damage is not hidden by waivers": (
        verdict({"foreign": 6}, different=1, accepted=1),
        "incomplete",
        4,
    ),
    "most files are torn": (verdict({"torn": 4, "gone": 2}, different=9), "unreadable", 4),
    "most lines are of no record": (verdict({"foreign": 1001}, different=9), "unreadable", 4),
    "most pairs are damaged": (verdict(damaged=501), "unreadable", 4),
    "no line can be read": (verdict({"foreign": 1001}, compared=0), "unreadable", 4),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    """No data is no pass, and what is lost can spoil one."""
    found, label, status = VERDICTS[name]
    assert (found.label, found.status) == (label, status)
    assert found.reasons


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (verdict(), "none of 500 pairs compared differs"),
        (verdict(different=1, not_played=3), "1 of 500 pairs compared differ"),
        (verdict(different=1, not_played=3), "3 exchanges were not compared"),
        (verdict(different=9, accepted=9), "9 of them differ in what is waived alone"),
        (verdict({"torn": 2}), "2 of 10 files are torn or gone, and what they held is lost"),
        (verdict({"duplicate": 2}), "2 lines stand there twice, and count once"),
        (verdict(lines_missing=6), "6 of 506 lines or pairs are missing, or cannot be read"),
        (verdict(compared=0), "there is no exchange"),
    ],
)
def test_reasons(found: Verdict, reason: str) -> None:
    """What was not looked at is among them."""
    assert reason in found.reasons


@pytest.mark.parametrize("pairs", [1, 20, 299, 5000])
def test_equal_pairs_leave_what_the_exact_interval_says(pairs: int) -> None:
    """The upper limit of Clopper and Pearson's, one-sided."""
    one_sided = stats.binomtest(0, pairs, alternative="less").proportion_ci(0.95, "exact")
    assert at_most(pairs) == pytest.approx(one_sided.high)
    assert at_most(0) == 1.0


def test_a_waiver_is_written_beside_what_is_there(tmp_path: Path) -> None:
    """Comments stay; a cause's later waiver takes the place of its earlier one."""
    path = tmp_path / "waivers.toml"
    path.write_text("# ours\n\n[waiver.00000001] # old\nowner='a'\nreason='b'\nuntil=2026-12-01\n")
    hostile = Waiver(owner="ana", reason='"""\n[waiver.x]', until=TODAY, at_most_percent=2.5)
    waive(path, "0123abcd", hostile, TODAY)
    assert path.read_text().startswith("# ours\n\n[waiver.00000001] # old\n")
    assert read_waivers(path) == {
        "00000001": Waiver(owner="a", reason="b", until=date(2026, 12, 1)),
        "0123abcd": hostile,
    }
    later = Waiver(owner="bo", reason="c", until=date(2027, 1, 1))
    waive(path, "0123abcd", later, TODAY)
    assert read_waivers(path)["0123abcd"] == later
    assert read_waivers(tmp_path / "none.toml") == {}


WAIVER = Waiver(owner="ana", reason="known", until=TODAY)


@pytest.mark.parametrize(
    ("cause", "waiver", "why"),
    [
        ("text", WAIVER, "CAUSE: 'text': the id of a cause has eight"),
        ("0123abcd", Waiver(owner="a", reason="b", until=date(2026, 11, 27)), "2026-11-27 is over"),
        ("0123abcd", Waiver(owner=" ", reason="b", until=TODAY), "owner"),
        ("0123abcd", Waiver(owner="a", reason="", until=TODAY), "reason"),
        (
            "0123abcd",
            Waiver(owner="a", reason="b", until=TODAY, at_most_percent=0),
            "at_most_percent",
        ),
    ],
)
def test_a_waiver_that_cannot_be_meant_is_refused(
    tmp_path: Path, cause: str, waiver: Waiver, why: str
) -> None:
    """And nothing is written."""
    with pytest.raises(WaiversRefused, match=why):
        waive(tmp_path / "waivers.toml", cause, waiver, TODAY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[waiver.0123abcd]\nowner = 'a'\nuntil = 2026-12-01", "missing required field `reason`"),
        ("[waiver.0123abcd]\nowner='a'\nreason='b'\nuntil=2026-12-01\nuntill=1", "untill"),
        ("[waiver.text]\nowner='a'\nreason='b'\nuntil=2026-12-01", "waiver.text"),
        ("[waiver", "waivers.toml: "),
        ("[waivers.0123abcd]", "waivers"),
    ],
)
def test_a_file_of_waivers_that_cannot_be_meant_is_refused(
    tmp_path: Path, content: str, why: str
) -> None:
    """It names the place, and nothing is written into it."""
    path = tmp_path / "waivers.toml"
    path.write_text(content)
    with pytest.raises(WaiversRefused, match=why):
        read_waivers(path)
    with pytest.raises(WaiversRefused, match=why):
        waive(path, "0123abcd", WAIVER, TODAY)
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("today", "share", "standing"),
    [
        (TODAY, 0.025, "in_force"),
        (TODAY, 0.026, "grown"),
        (date(2026, 11, 29), 0.01, "expired"),
    ],
)
def test_a_waiver_holds_until_its_day_and_up_to_its_share(
    today: date, share: float, standing: str
) -> None:
    """The last day counts."""
    waiver = Waiver(owner="a", reason="b", until=TODAY, at_most_percent=2.5)
    assert waiver.standing(share, today) == standing
