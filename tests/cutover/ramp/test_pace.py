"""How long the steps of a ramp take, from the requests that captures hold."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contract.flows.chat import CHAT
from cutover.ramp.machine import Plan
from cutover.ramp.pace import captured_rate, describe_pace
from tests.support.drawn_captures import write_captures
from tests.support.drawn_outcomes import DrawnRollout

PLAN = Plan(steps=(1.0, 50.0, 99.0, 100.0), hold=3_600.0, passes=3, interval=60.0)


def test_the_rate_is_that_of_the_last_captured_day(tmp_path: Path) -> None:
    """Ten requests a second; the many of a week before are of another day."""
    rows = DrawnRollout(requests=100).outcomes()
    week = 7 * 86_400_000_000
    before = [
        msgspec.structs.replace(one, exchange=f"old {one.exchange}", began=one.began - week)
        for one in rows
    ]
    captures = write_captures(tmp_path, [*before, *rows])
    assert captured_rate(str(captures), CHAT) == pytest.approx(10.0)


def test_without_captures_the_rate_is_unknown(tmp_path: Path) -> None:
    """None there, none in it, and one request, which has no rate."""
    assert captured_rate(str(tmp_path / "nowhere"), CHAT) is None
    (tmp_path / "empty").mkdir()
    assert captured_rate(str(tmp_path / "empty"), CHAT) is None
    one = write_captures(tmp_path, DrawnRollout(requests=1).outcomes())
    assert captured_rate(str(one), CHAT) is None
    assert "unknown" in next(describe_pace(PLAN, 0.0, 500, None))


def test_a_step_takes_the_time_of_its_requests_and_is_held() -> None:
    """The smaller side counts, and a step is never shorter than its holding time."""
    assert [*describe_pace(PLAN, 0.0, 500, 1.0)] == [
        (
            "step 1 % needs at least 50,000 requests, for 500 on graph: about 13.9 hours, "
            "at 86,400 requests a day"
        ),
        (
            "step 50 % needs at least 1,000 requests, for 500 on graph: about 60 minutes, "
            "at 86,400 requests a day"
        ),
        (
            "step 99 % needs at least 50,000 requests, for 500 on legacy: about 13.9 hours, "
            "at 86,400 requests a day"
        ),
        "step 100 %: held for 60 minutes",
    ]
    assert [*describe_pace(PLAN, 99.0, 500, 1.0)] == ["step 100 %: held for 60 minutes"]
