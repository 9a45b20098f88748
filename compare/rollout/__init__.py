"""Whether the share of graph may rise: the gate, its statistics, and the ramp."""

from compare.rollout.gate import Arm, Decision, Scope, Verdict, decide, planned
from compare.rollout.ramp import ALL, LOOK_SECONDS, RampPlan, ramp

__all__ = [
    "ALL",
    "LOOK_SECONDS",
    "Arm",
    "Decision",
    "RampPlan",
    "Scope",
    "Verdict",
    "decide",
    "planned",
    "ramp",
]
