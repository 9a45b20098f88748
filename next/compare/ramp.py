"""Raises the share of graph step by step, each as the gate decides on the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from compare.gate import Decision, Verdict, planned

LOOK_SECONDS: Final = 60.0
ALL: Final = 100.0
"""The share, in percent, at which nothing is left to compare with."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Shares in percent, and how many hours each is in force at least, and at most."""

    steps: Sequence[float]
    least_hours: float
    most_hours: float

    def problems(self) -> list[str]:
        """Return what of it cannot be meant."""
        found = []
        if not self.steps or list(self.steps) != sorted(set(self.steps)):
            found.append("the steps rise, as 1,5,25,50,100")
        if not all(0 < one <= ALL for one in self.steps):
            found.append("a step is above 0 and at most 100 %")
        if not 0 <= self.least_hours <= self.most_hours:
            found.append("a step is in force for no more hours at least than at most")
        return found

    def after(self, percent: float) -> list[float]:
        """Return the steps from a share in force on, and the share itself first, if it is one."""
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
        """Return what the exchanges since the share was written say."""

    def hours(self) -> float:
        """Return for how long the share has stood in the file."""


def ramp(
    plan: Plan,
    rollout: Rollout,
    wait: Callable[[float], object],
    tell: Callable[[str], object],
) -> Verdict:
    """Carry out a plan from the share in force on; return the last verdict.

    Roll back as soon as the gate says so, and stop at a step that does not come to promote, with
    its share left in force. A share that was changed by hand is left alone.
    """
    percent = rollout.percent()
    for step in plan.after(percent):
        if step != percent:
            if rollout.percent() != percent:
                return _changed(rollout, tell)
            rollout.raise_to(step)
            percent = step
        tell(f"{step:g} % of {'the exchanges go to graph' if step < ALL else 'all: done'}")
        if step >= ALL:
            break
        decision = _judged(plan, rollout, step, wait)
        if decision is None:
            return _changed(rollout, tell)
        if decision.verdict == "roll_back":
            rollout.roll_back()
        tell("\n".join((decision.verdict.replace("_", " "), *decision.reasons)))
        if decision.verdict != "promote":
            tell("rolled back" if decision.verdict == "roll_back" else f"next: {decision.next}")
            return decision.verdict
    return "promote"


def _judged(
    plan: Plan, rollout: Rollout, step: float, wait: Callable[[float], object]
) -> Decision | None:
    """Return the decision that ends a step; None where its share was changed by hand.

    Rolling back is decided at each look, the rest once so many exchanges have come as were planned,
    or were missing then: intervals that are looked at all the time would promote too often.
    """
    due = planned(step / ALL)
    while True:
        decision, hours = rollout.decide(), rollout.hours()
        if rollout.percent() != step:
            return None
        if decision.verdict == "roll_back" or hours >= plan.most_hours:
            return decision
        count = sum(one.exchanges for one in decision.arms.values())
        if hours >= plan.least_hours and count >= due:
            if not decision.missing:
                return decision
            due = count + decision.missing
        wait(LOOK_SECONDS)


def _changed(rollout: Rollout, tell: Callable[[str], object]) -> Verdict:
    tell(f"stopped: the share was changed to {rollout.percent():g} % by hand")
    return "hold"


def forecast(plan: Plan, percent: float, hourly: float) -> list[str]:
    """Return a line for each step: how many exchanges it needs, and how long they take to come."""
    lines = []
    for step in plan.after(percent):
        line = f"{step:g} %"
        if step < ALL:
            needed = planned(step / ALL)
            line += f": {needed} exchanges at least"
            line += f", about {needed / hourly:.1f} h at {hourly:.0f} an hour" if hourly else ""
        lines.append(line)
    return lines
