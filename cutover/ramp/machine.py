"""When a ramp moves: looks folded into a state, and the flags that follow from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from evidence.decision import Verdict

Phase = Literal["running", "rolling_back", "rolled_back", "done", "stopped"]
"""`running` and `rolling_back` have looks to come; the others are ends."""

_SLACK = 2
"""Intervals that one look may add to the holding time: time without looks is not held."""


class Flags(msgspec.Struct, frozen=True):
    """What routers read of a flow: whether graph may serve, and its percentage of route keys."""

    enabled: bool
    percent: float

    @property
    def share(self) -> float:
        """The percentage in force: 0 where graph is switched off."""
        return self.percent if self.enabled else 0.0

    def __str__(self) -> str:
        """Write both as the configuration does."""
        return (
            f"enable_langgraph = {str(self.enabled).lower()}, langgraph_percent = {self.percent:g}"
        )


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look of a ramp: when (Unix seconds), and what the gate said about going to `to` percent.

    `failure` says why there is no decision; then the verdict is `cannot_tell`.
    """

    at: float
    verdict: Verdict
    reasons: tuple[str, ...]
    to: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rising percentages, seconds each is held, consecutive passes each needs, seconds a look."""

    steps: tuple[float, ...]
    hold: float
    passes: int
    interval: float

    def after(self, percent: float) -> float | None:
        """Return the next step above a percentage; None at the last."""
        return next((step for step in self.steps if step > percent), None)


class RampState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ramp of a flow is; other processes read it as JSON (docs/ramp.md).

    `flags` are those that the ramp wrote last, or found when it began. `writing` are those that it
    was about to write: after a kill they are in force or not. `late` are those of an earlier write
    that was never confirmed, and may come in force yet. `since`: when the current step came
    in force, Unix seconds. `held`: seconds of it in which looks were made. `counted_at`: the look
    up to which they count; None after a look that failed.
    """

    flow: str
    flags: Flags
    since: float
    phase: Phase = "running"
    writing: Flags | None = None
    late: Flags | None = None
    held: float = 0.0
    passes: int = 0
    counted_at: float | None = None
    look: Look | None = None
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether the ramp makes no more looks."""
        return self.phase in {"rolled_back", "done", "stopped"}


def begin(flow: str, flags: Flags, now: float) -> RampState:
    """Return the state of a ramp that begins with the flags in force."""
    return RampState(flow=flow, flags=flags, since=now, counted_at=now)


def reconcile(state: RampState, found: Flags, now: float) -> RampState:
    """Compare the flags in force with what the ramp wrote: any other ones are a person's."""
    if found == state.writing:
        return written(state, found, now)
    if found == state.flags:
        return msgspec.structs.replace(state, writing=None, late=state.writing or state.late)
    if found == state.late:
        late = msgspec.structs.replace(state, flags=found, writing=None, late=None)
        return late if state.phase == "rolling_back" else written(state, found, now)
    detail = f"changed by someone else: found {found}, the ramp had left {state.flags}"
    return msgspec.structs.replace(state, phase="stopped", writing=None, detail=detail)


def written(state: RampState, flags: Flags, now: float) -> RampState:
    """Return the state after these flags came in force: a step begins, or the rollback is made."""
    if state.phase == "rolling_back":
        detail = f"rolled back: {flags}"
        return msgspec.structs.replace(
            state, flags=flags, writing=None, phase="rolled_back", detail=detail
        )
    return RampState(
        flow=state.flow,
        flags=flags,
        since=now,
        counted_at=now,
        look=state.look,
        detail=f"promoted to {flags.percent:g} %",
    )


def fold(state: RampState, plan: Plan, look: Look) -> RampState:
    """Fold one look into a running state.

    A rollback verdict is final. Only `promote` counts as a pass, and any other verdict ends a row
    of them. After the last step nothing is promoted: it is held, and the ramp is done.
    """
    held = state.held
    if state.counted_at is not None and not look.failure:
        held += min(max(look.at - state.counted_at, 0.0), _SLACK * plan.interval)
    passes = state.passes + 1 if look.verdict == "promote" else 0
    folded = msgspec.structs.replace(
        state,
        held=held,
        passes=passes,
        counted_at=None if look.failure else look.at,
        look=look,
    )
    if look.verdict == "rollback":
        return msgspec.structs.replace(folded, phase="rolling_back", detail="rolling back")
    if plan.after(state.flags.share) is None:
        if held >= plan.hold and not look.failure:
            detail = f"done: {state.flags.share:g} % on graph"
            return msgspec.structs.replace(folded, phase="done", detail=detail)
        return msgspec.structs.replace(folded, detail=_waiting(folded, plan, passes_needed=0))
    return msgspec.structs.replace(folded, detail=_waiting(folded, plan, plan.passes))


def wanted(state: RampState, plan: Plan) -> Flags | None:
    """Return the flags that are to be written now; None where nothing is."""
    if state.phase == "rolling_back":
        return Flags(enabled=False, percent=state.flags.percent)
    step = plan.after(state.flags.share)
    if state.phase != "running" or step is None:
        return None
    due = state.held >= plan.hold or not state.flags.share  # no step is in force yet
    return Flags(enabled=True, percent=step) if due and state.passes >= plan.passes else None


def _waiting(state: RampState, plan: Plan, passes_needed: int) -> str:
    held = f"held {min(state.held, plan.hold):.0f} of {plan.hold:.0f} s"
    if not state.flags.share:
        held = "no step yet"
    passes = f", {min(state.passes, passes_needed)} of {passes_needed} passes"
    look = state.look
    paused = "" if look is None or look.verdict == "promote" else "paused: "
    if look is not None and look.failure:
        paused = f"paused: {look.failure}; "
    return f"{paused}{held}{passes if passes_needed else ''}"
