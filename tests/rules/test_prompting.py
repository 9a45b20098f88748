"""Parameters of prompts: date and time in the configured zone, overridden by the request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

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
