"""A ramp carries out its plan, waits, stops, rolls back, and leaves alone what others change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from compare.rollout import (
    LOOK_SECONDS,
    Arm,
    Decision,
    RampPlan,
    Scope,
    Verdict,
    decide,
    planned,
    ramp,
)
from compare.rows import frame

PLAN = RampPlan((1, 5, 25, 50, 100), least_hours=1, most_hours=24)


NOTHING = decide(frame([]), Scope("chat", share=0.5, config="", now=0))


def decision(verdict: Verdict, missing: int = 0) -> Decision:
    """Return a decision."""
    told: dict[str, Any] = {"reasons": ("why",), "next": "what next"}
    return msgspec.structs.replace(NOTHING, verdict=verdict, missing=missing, **told)


PROMOTE, WORSE = decision("promote"), decision("hold")
WAITING, FEW = decision("hold", 100), decision("cannot_tell", 100)
SKEWED, BACK = decision("cannot_tell"), decision("roll_back")
MORE = decision("hold", 600)


@dataclass
class Simulated:
    """A share whose decisions come one a look; the last one stays."""

    decisions: Sequence[Decision | OSError]
    share: float = 0.0
    by_hand: tuple[int, float] = (-1, 0.0)
    """The look at which a share is written by hand."""
    log: list[str] = field(default_factory=list)
    minutely: int = 60_000
    """Exchanges that come in a minute."""
    looks: int = 0
    waited: float = 0.0

    def percent(self) -> float:
        """The share."""
        return self.share

    def raise_to(self, percent: float) -> None:
        """Write a share."""
        self.share, self.waited = percent, 0.0
        self.log.append(f"{percent:g}")

    def roll_back(self) -> None:
        """Write none."""
        self.share = 0.0
        self.log.append("back")

    def decide(self) -> Decision:
        """The next decision, on what has come."""
        found = self.decisions[min(self.looks, len(self.decisions) - 1)]
        if self.looks == self.by_hand[0]:
            self.share = self.by_hand[1]
        self.looks += 1
        if isinstance(found, OSError):
            raise found
        came = round(self.minutely * (1 + self.waited / 60))
        return msgspec.structs.replace(found, arms={"graph": Arm(came, came, 0, 0)})

    def hours(self) -> float:
        """Since it was written."""
        return self.waited / 3_600

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waited += seconds


@pytest.mark.parametrize(
    ("rollout", "verdict", "log", "hours"),
    [
        (Simulated([PROMOTE]), "promote", "1 5 25 50 100", 0),
        (Simulated([PROMOTE], share=25), "promote", "50 100", 0),
        (Simulated([PROMOTE], share=100), "promote", "", 0),
        (Simulated([FEW] * 90 + [WAITING] * 90 + [PROMOTE]), "promote", "1 5 25 50 100", 0),
        (Simulated([PROMOTE] * 61 + [BACK]), "roll_back", "1 5 back", 0),
        (Simulated([BACK], share=5), "roll_back", "back", 0),
        (Simulated([OSError("away")] * 90 + [PROMOTE] * 61 + [BACK]), "roll_back", "1 5 back", 0),
        (Simulated([WORSE]), "hold", "1", 1),
        (Simulated([SKEWED]), "cannot_tell", "1", 1),
        (Simulated([FEW]), "cannot_tell", "1", 24),
        (Simulated([WORSE], share=50, minutely=10), "hold", "", 1.8),
        (Simulated([MORE] * 120 + [PROMOTE], 50, minutely=10), "promote", "100", 0),
        (Simulated([WAITING], share=50), "hold", "", 24),
        (Simulated([PROMOTE], by_hand=(3, 0.0)), "hold", "1", 0.05),
        (Simulated([BACK], by_hand=(0, 50.0)), "hold", "1", 0),
    ],
)
def test_a_plan_is_carried_out(
    rollout: Simulated, verdict: Verdict, log: str, hours: float
) -> None:
    """Each share is in force for an hour at least; more exchanges are waited for, for a day."""
    told: list[str] = []
    assert ramp(PLAN, rollout, rollout.wait, told.append) == verdict
    assert " ".join(rollout.log) == log
    if hours:
        assert rollout.waited == pytest.approx(hours * 3_600, abs=2 * LOOK_SECONDS)
    if verdict in {"hold", "cannot_tell"}:
        by_hand = "next: cutover ramp, to go on from there"
        assert told[-1] == ("next: what next" if rollout.by_hand[0] < 0 else by_hand)


def test_each_share_is_in_force_for_the_least_time() -> None:
    """Also where the first look would promote."""
    rollout = Simulated([PROMOTE])
    ramp(PLAN, rollout, rollout.wait, lambda _: None)
    assert rollout.looks == 4 * (3_600 / LOOK_SECONDS + 1)


def test_what_cannot_be_read_for_the_whole_step_is_raised() -> None:
    """Its share stays."""
    rollout = Simulated([OSError("away")])
    with pytest.raises(OSError, match="away"):
        ramp(PLAN, rollout, rollout.wait, lambda _: None)
    assert (rollout.log, rollout.hours()) == (["1"], 24)


def test_a_step_is_judged_at_planned_numbers_of_exchanges() -> None:
    """Between them a promotion is not taken; a step ends when its number has come."""
    rollout = Simulated([*[PROMOTE] * 107, MORE, PROMOTE], share=50, minutely=10)
    assert ramp(PLAN, rollout, rollout.wait, lambda _: None) == "promote"
    assert planned(0.5) == 1_078
    assert rollout.looks == 108 + 60
