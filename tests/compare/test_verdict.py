"""What may be said of what was read, and what a team has accepted of it."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from scipy import stats

from compare.verdict import Read, Verdict, at_most, decide
from compare.waivers import Waiver, read_waivers, waive
from cutover.errors import Unusable

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
    "all equal": (verdict(), "equal", 0, "none of 500 pairs compared differs"),
    "what differs is waived": (
        *(verdict(different=9, accepted=9), "equal", 0),
        "9 of them differ in what is waived alone",
    ),
    "one more is not": (verdict(different=9, accepted=8), "different", 1, "8 of them differ"),
    "nothing was played": (verdict(compared=0, not_played=400), "nothing", 3, "400 exchanges"),
    "some were not played": (
        *(verdict(client_left=9, not_played=400), "equal", 0),
        "409 exchanges were not compared: 400 not played, 9 client left",
    ),
    "a torn file": (verdict({"torn": 1}), "incomplete", 4, "1 of 10 files are torn or gone"),
    "a file that is gone": (verdict({"gone": 1}, different=1), "different", 1, "1 of 10 files"),
    "a hundredth is missing": (verdict(lines_missing=5), "equal", 0, "5 of 505 lines or pairs"),
    "more is missing": (verdict(lines_missing=6), "incomplete", 4, "6 of 506 lines or pairs"),
    "more is damaged": (verdict(damaged=6), "incomplete", 4, "6 of 506 lines or pairs"),
    "more is of no record": (verdict({"foreign": 6}), "incomplete", 4, "6 of 506 lines or pairs"),
    "damage behind waivers": (
        *(verdict({"foreign": 6}, different=1, accepted=1), "incomplete", 4),
        "6 of 506 lines or pairs are missing, or cannot be read",
    ),
    "most files are torn": (verdict({"torn": 4, "gone": 2}, different=9), "unreadable", 4, "6 of"),
    "most lines are foreign": (verdict({"foreign": 1001}, different=9), "unreadable", 4, "1,001"),
    "most pairs are damaged": (verdict(damaged=501), "unreadable", 4, "501 of 1,001 lines"),
    "no line can be read": (verdict({"foreign": 1001}, compared=0), "unreadable", 4, "1,001 of"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    """No data is no pass, what is lost can spoil one, and what was not read is among reasons."""
    found, label, status, reason = VERDICTS[name]
    assert (found.label, found.status) == (label, status)
    assert any(one.startswith(reason) for one in found.reasons)


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
    ("cause", "changed", "why"),
    [
        ("text", {}, "CAUSE: 'text': the id of a cause has eight"),
        ("0123abcd", {"until": date(2026, 11, 27)}, "2026-11-27 is over"),
        ("0123abcd", {"owner": " "}, "owner"),
        ("0123abcd", {"reason": ""}, "reason"),
        ("0123abcd", {"at_most_percent": 0.0}, "at_most_percent"),
    ],
)
def test_a_waiver_that_cannot_be_meant_is_refused(
    tmp_path: Path, cause: str, changed: dict[str, Any], why: str
) -> None:
    """And nothing is written."""
    with pytest.raises(Unusable, match=why):
        waive(tmp_path / "waivers.toml", cause, replace(WAIVER, **changed), TODAY)
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
    with pytest.raises(Unusable, match=why):
        read_waivers(path)
    with pytest.raises(Unusable, match=why):
        waive(path, "0123abcd", WAIVER, TODAY)
    assert path.read_text() == content
