"""Prompts: date and time in the configured zone, overridden by the request; fixed texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from contract.flows.chat import TEXT_NAMES
from rules import prompts
from rules.prompts import parameters

NOW = datetime(2026, 12, 31, 23, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "date", "time"),
    [
        ("UTC", "2026-12-31", "23:30:05"),
        ("Asia/Shanghai", "2027-01-01", "07:30:05"),
        ("America/New_York", "2026-12-31", "18:30:05"),
        ("Asia/Kolkata", "2027-01-01", "05:00:05"),
    ],
)
def test_date_and_time_are_those_of_the_zone(zone: str, date: str, time: str) -> None:
    """Across midnight and New Year, and with half hours."""
    assert parameters(NOW, zone, None) == {"current_date": date, "current_time": time}


def test_daylight_saving_is_kept() -> None:
    """A summer's day in New York is four hours behind."""
    summer = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert parameters(summer, "America/New_York", None)["current_time"] == "08:00:00"


def test_a_clock_of_another_zone_is_understood() -> None:
    """Only the moment counts."""
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    assert parameters(elsewhere, "UTC", None) == parameters(NOW, "UTC", None)


def test_what_a_request_sends_overrides_and_adds() -> None:
    """Built-in parameters first, the request's last."""
    assert parameters(NOW, "UTC", {"current_date": "today", "mood": None, "n": 1}) == {
        "current_date": "today",
        "current_time": "23:30:05",
        "mood": None,
        "n": 1,
    }


def test_the_notices_are_the_documented_ones() -> None:
    """Word for word."""
    assert prompts.ending_notice("content_filter", {}) == "赤尾有点不想讨论这个话题呢~"
    assert prompts.ending_notice("length", {}) == "(后续内容被截断)"


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "", "something_new"])
def test_a_reply_that_ended_by_itself_gets_no_notice(finish: str) -> None:
    """Also for unknown finish reasons, and with any overrides."""
    assert prompts.ending_notice(finish, {finish: "odd"}) == ""


def test_every_text_can_be_configured() -> None:
    """What the options take is what there is."""
    assert prompts.DEFAULTS.keys() == TEXT_NAMES


def test_a_text_can_be_overridden_by_its_name() -> None:
    """With an empty one as well; the others stay."""
    assert prompts.ending_notice("length", {"length": "(cut)"}) == "(cut)"
    assert prompts.ending_notice("length", {"length": ""}) == ""
    assert prompts.text("content_filter", {"length": "(cut)"}) == "赤尾有点不想讨论这个话题呢~"


def test_an_unknown_text_is_a_mistake_of_ours() -> None:
    """Names are constants of this module."""
    with pytest.raises(KeyError):
        prompts.text("farewell", {})


def test_the_default_prompt_takes_exactly_the_built_in_parameters() -> None:
    """It stands in for a missing file, so nothing else may be asked of it."""
    prompt = prompts.DEFAULT_SYSTEM_PROMPT.format(
        current_time="12:00:00", current_date="2026-01-01"
    )
    assert "12:00:00" in prompt
    assert "2026-01-01" in prompt
    assert "{" not in prompt
