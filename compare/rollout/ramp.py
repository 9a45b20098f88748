"""Raises the share of graph step by step, each as the gate decides on the one before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from compare.rollout.gate import Decision, Verdict, planned

Wait = Callable[[float], object]
Tell = Callable[[str], object]
LOOK_SECONDS: Final = 60.0
ALL: Final = 100.0
"""The share, in percent, at which nothing is left to compare with."""


@dataclass(frozen=True, slots=True)
class RampPlan:
    """Shares in percent to a thousandth, and hours that each is in force at least and at most."""

    steps: Sequence[float]
    least_hours: float
    most_hours: float

    def problems(self) -> list[str]:
        """Return what of it cannot be meant."""
        wrong = {
            "steps are shares in percent that rise, as 1,5,25,50,100": not self.steps
            or list(self.steps) != sorted(set(self.steps))
            or not all(0 < one <= ALL and one == round(one, 3) for one in self.steps),
            "least hours are no more than most": not 0 <= self.least_hours <= self.most_hours,
        }
        return [problem for problem, found in wrong.items() if found]

    def after(self, percent: float) -> list[float]:
        """Return the share in force, if it is one, and the steps above it."""
        return [percent] * (percent > 0) + [one for one in self.steps if one > percent]


class Rollout(Protocol):
    """A flow's share in the file that decides."""

    def percent(self) -> float:
        """Return the share in the file, 0 where graph is switched off."""

    def raise_to(self, percent: float) -> None:
        """Write a share."""

    def roll_back(self) -> None:
        """Switch graph off."""

    def decide(self) -> Decision:
        """Return what the exchanges since the file was written say."""

    def hours(self) -> float:
        """Return how long ago the file was written."""


def ramp(plan: RampPlan, rollout: Rollout, wait: Wait, tell: Tell) -> Verdict:
    """Carry out a plan from the share in force on; return the last verdict.

    Roll back as soon as the gate says so, and stop at a step that does not come to promote, with
    its share left in force, and where the share is changed by hand.
    """
    share = rollout.percent()
    for step in plan.after(share):
        if rollout.percent() == share != step:
            rollout.raise_to(step)
            share = step
            tell(f"{share:g} %: written")
        decision = _judged(plan, rollout, share, wait, tell) if share < ALL else None
        if rollout.percent() != share:
            tell(f"stopped: the share was changed by hand to {rollout.percent():g} %")
            tell("next: cutover ramp, to go on from there")
            return "hold"
        if decision is None:
            continue
        tell("\n  ".join((f"{share:g} %: {decision.verdict.replace('_', ' ')}", *decision.reasons)))
        if decision.verdict == "roll_back":
            rollout.roll_back()
        if decision.verdict != "promote":
            tell(f"next: {decision.next}")
            return decision.verdict
    tell("next: watch it at 100 %, and then take legacy out")
    return "promote"


def _judged(plan: RampPlan, rollout: Rollout, share: float, wait: Wait, tell: Tell) -> Decision:
    """Return the decision that ends a step.

    Rolling back is decided at each look, the rest once so many exchanges have come as were planned,
    or were missing then: intervals that are looked at all the time would promote too often.
    """
    due = planned(share / ALL)
    while True:
        hours = rollout.hours()
        try:
            decision = rollout.decide()
        except Exception as error:
            if hours >= plan.most_hours:
                raise
            tell(f"looked in vain, and again in a minute: {error!r}")
            wait(LOOK_SECONDS)
            continue
        changed = rollout.percent() != share
        if changed or decision.verdict == "roll_back" or hours >= plan.most_hours:
            return decision
        count = sum(one.exchanges for one in decision.arms.values())
        if hours >= plan.least_hours and count >= due:
            if not decision.missing:
                return decision
            due = count + decision.missing
        wait(LOOK_SECONDS)
