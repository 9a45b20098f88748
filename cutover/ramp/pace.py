"""How long the steps of a ramp take at least, by the requests that captures hold."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from compare.input.damage import CapturesUnreadable, Damage
from compare.input.outcomes import read_outcomes
from compare.input.selection import Selection
from contract.flow import FlowSpec
from cutover.ramp.machine import Plan

_DAY_US: Final = 86_400_000_000
_MICROSECONDS: Final = 1_000_000
_EVERYTHING: Final = 100
_UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))


def captured_rate(captures: str, spec: FlowSpec) -> float | None:
    """Return the requests a second of a flow over the last day that was captured.

    None where there are none, or captures cannot be read. The gate sees no others: of a sample it
    is the sample's rate.
    """
    began = array("q")
    try:
        for one in read_outcomes(captures, {spec.name: spec}, Selection(flow=spec.name)):
            if not isinstance(one, Damage):
                began.append(one.began)
    except (CapturesUnreadable, OSError):
        return None
    last = max(began, default=0)
    recent = [at for at in began if at > last - _DAY_US]
    span = last - min(recent, default=last)
    return (len(recent) - 1) * _MICROSECONDS / span if span else None


def describe_pace(plan: Plan, share: float, requests: int, rate: float | None) -> Iterator[str]:
    """Describe each step above a share: the requests it needs, and how long those take.

    `requests` are the least a side that the gate asks for, `rate` is in requests a second. It may
    ask for more: those are the least.
    """
    if rate is None:
        yield "how long steps take is unknown: no requests of the flow are captured"
    for step in plan.steps:
        if step <= share:
            continue
        if step >= _EVERYTHING:
            yield f"step {step:g} %: held for {_time(plan.hold)}"
            continue
        smaller = min(step, _EVERYTHING - step)
        needed = round(requests * _EVERYTHING / smaller)
        side = "graph" if step == smaller else "legacy"
        text = f"step {step:g} % needs at least {needed:,} requests, for {requests:,} on {side}"
        if rate is not None:
            text += (
                f": about {_time(max(needed / rate, plan.hold))}, "
                f"at {rate * 86_400:,.0f} requests a day"
            )
        yield text


def _time(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:,.3g} seconds"
