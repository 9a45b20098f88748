"""Judged answers in the gate: they hold a promotion, and are asked for only where critical."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contract.flows import SPECS
from cutover.gate import decide
from cutover.judge.judgements import JudgementsUnreadable, add_judged, default_file
from evidence.decision import Check
from evidence.preferences import JudgedPair, Preferred
from router.config.loader import parse_settings
from tests.support.answer_pairs import answered, captured
from tests.support.capture_files import BEGAN


def judged(folder: Path, control: int, candidate: int, pairs: str = "x") -> None:
    """Store so many preferences beside captures, of pairs whose names begin so."""
    liked: list[Preferred] = ["control"] * control
    liked += ["candidate"] * candidate
    add_judged(
        default_file(str(folder)),
        [
            JudgedPair(
                exchange=f"{pairs}-{k}", flow="chat", began=BEGAN, judge="person", preferred=side
            )
            for k, side in enumerate(liked)
        ],
    )


def quality(folder: Path, gate: str = "", since: int | None = None) -> list[Check]:
    """Return what the gate says of judged answers."""
    settings = parse_settings(f"[gate]\nselftest = false\n{gate}", "cutover.toml", SPECS)
    decision = decide(str(folder), settings, "chat", to=25, since=since)
    return [one for one in decision.checks if one.name == "quality"]


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Capture fifty pairs."""
    pairs = [answered(f"x-{number}", "old", "new") for number in range(50)]
    return captured(tmp_path / "captures", pairs)


def test_answers_that_are_liked_less_hold(captures: Path) -> None:
    """With the figure, its interval, and where the judgements are."""
    judged(captures, 40, 10)
    [check] = quality(captures)
    assert (check.verdict, check.n, check.value, check.critical) == ("hold", 50, 0.2, False)
    assert "people preferred graph in 10 of 50 pairs" in check.reason
    assert check.rows == f"{captures}/quality.json"


def test_the_margin_is_configured(captures: Path) -> None:
    """A share within it is no reason to hold."""
    judged(captures, 34, 16)
    assert [one.verdict for one in quality(captures)] == ["hold"]
    assert [one.verdict for one in quality(captures, "quality = 0.25")] == ["promote"]


def test_unjudged_answers_are_a_check_only_where_that_is_critical(captures: Path) -> None:
    """Then it cannot tell; judgements from before `since` are none."""
    critical = 'critical = ["quality"]'
    assert quality(captures) == []
    assert [one.verdict for one in quality(captures, critical)] == ["cannot_tell"]
    judged(captures, 10, 40)
    assert [one.verdict for one in quality(captures, critical)] == ["promote"]
    [check] = quality(captures, since=BEGAN + 1)
    assert (check.verdict, check.critical, check.n) == ("cannot_tell", False, 0)


def test_judgements_of_pairs_outside_the_captures_do_not_count(captures: Path) -> None:
    """Of captures that were deleted since, or of another service; the reason says how many."""
    judged(captures, 50, 0, "gone")
    [check] = quality(captures)
    assert (check.verdict, check.n) == ("cannot_tell", 0)
    judged(captures, 10, 40)
    [check] = quality(captures)
    assert (check.verdict, check.n) == ("promote", 50)
    assert check.reason.endswith("; judgements left out, of pairs that were not compared: 50")


def test_judgements_of_other_code_do_not_count(captures: Path) -> None:
    """Answers of graph before it was deployed anew were liked less."""
    judged(captures, 50, 0)
    assert [one.verdict for one in quality(captures)] == ["hold"]
    old = [answered(f"x-{number}", "old", "new", code="1") for number in range(50)]
    new = [
        [msgspec.structs.replace(run, began=BEGAN + 1) for run in answered("y", "a", "b", code="2")]
    ]
    captured(captures, [*old, *new])
    [check] = quality(captures)
    assert (check.verdict, check.n) == ("cannot_tell", 0)
    assert check.reason.endswith("not compared: 50")


def test_a_file_that_is_none_is_an_error(captures: Path) -> None:
    """It is not taken for an absent one."""
    (captures / "quality.json").write_text("{")
    with pytest.raises(JudgementsUnreadable):
        quality(captures)
