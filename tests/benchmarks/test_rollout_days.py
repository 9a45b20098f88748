"""Simulated rollout days: what is drawn is evidence for the gate, with a fault and without."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.parts.rollout_days import FAULTS, Day, Fault
from cutover.ramp.machine import Flags
from evidence.decision import Verdict


@pytest.mark.parametrize(
    ("fault", "verdict"), [("", "promote"), *((fault, "rollback") for fault in FAULTS)]
)
def test_a_day_is_decided_by_what_is_drawn(fault: Fault, verdict: Verdict) -> None:
    """At half of the users, two hours are enough for either."""
    day = Day(np.random.default_rng(0), fault, 25.0)
    day.flags.flags = Flags(enabled=True, percent=50.0)
    assert day.wait(7_200.0)
    assert day.decide(100.0, None).verdict == verdict
