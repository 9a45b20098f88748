"""Prompts: date and time in the configured zone, overridden by the request; fixed texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from contract.flows.chat import TEXT_NAMES
from rules import chat
from rules.conversation import parameters

NOW = datetime(2026, 12, 31, 23, 30, 5, tzinfo=UTC)
SUMMER = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "zone", "date", "time"),
    [
        (NOW, "UTC", "2026-12-31", "23:30:05"),
        (NOW, "Asia/Shanghai", "2027-01-01", "07:30:05"),
        (NOW, "America/New_York", "2026-12-31", "18:30:05"),
        (NOW, "Asia/Kolkata", "2027-01-01", "05:00:05"),
        (SUMMER, "America/New_York", "2026-07-01", "08:00:00"),
        (NOW.astimezone(timezone(timedelta(hours=9))), "UTC", "2026-12-31", "23:30:05"),
    ],
)
def test_date_and_time_are_those_of_the_zone(
    now: datetime, zone: str, date: str, time: str
) -> None:
    """Across midnight and New Year, in summer, with half hours, and of a clock elsewhere."""
    assert parameters(now, zone, None) == {"current_date": date, "current_time": time}


def test_what_a_request_sends_overrides_and_adds() -> None:
    """Built-in parameters first, the request's last."""
    assert parameters(NOW, "UTC", {"current_date": "today", "mood": None, "n": 1}) == {
        "current_date": "today",
        "current_time": "23:30:05",
        "mood": None,
        "n": 1,
    }


FILTERED, CUT = "赤尾有点不想讨论这个话题呢~", "(后续内容被截断)"


@pytest.mark.parametrize(
    ("finish", "overrides", "notice"),
    [
        ("content_filter", {}, FILTERED),
        ("content_filter", {"length": "(cut)"}, FILTERED),
        ("length", {}, CUT),
        ("length", {"length": "(cut)"}, "(cut)"),
        ("length", {"length": ""}, ""),
        *((finish, {finish: "odd"}, "") for finish in ("stop", "tool_calls", "", "something_new")),
    ],
)
def test_a_reply_that_ended_early_gets_its_notice(
    finish: str, overrides: dict[str, str], notice: str
) -> None:
    """Word for word, unless configured; a reply that ended by itself gets none."""
    assert chat.ending_notice(finish, overrides) == notice


def test_every_text_can_be_configured() -> None:
    """What the options take is what there is."""
    assert chat.TEXTS.keys() == TEXT_NAMES


def test_the_default_prompt_takes_exactly_the_built_in_parameters() -> None:
    """It stands in for a missing file, so nothing else may be asked of it."""
    prompt = chat.DEFAULT_SYSTEM_PROMPT.format(current_time="12:00:00", current_date="2026-01-01")
    assert "12:00:00" in prompt
    assert "2026-01-01" in prompt
    assert "{" not in prompt
