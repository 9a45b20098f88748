"""Load shapes for Locust: tables of stages, how many users there are when.

    locust -f loadtests/users.py,loadtests/shapes.py --shape spike --users 50 --run-time 60 …

`--users` is the peak of a shape and `--run-time` its length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from locust import LoadTestShape, events
from locust.argument_parser import LocustArgumentParser
from locust.util import timespan

DEFAULT_PEAK = 10
DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Until `until` (seconds since the start) there are `users`, `rate` more or fewer a second."""

    until: float
    users: int
    rate: float


def stage_at(stages: tuple[Stage, ...], seconds: float) -> Stage | None:
    """Find the stage of a moment; None when the last one is over."""
    return next((stage for stage in stages if seconds < stage.until), None)


def steps(peak: int, seconds: float) -> tuple[Stage, ...]:
    """Climb to the peak in four steps of equal length."""
    return tuple(
        Stage(seconds * step / 4, max(peak * step // 4, 1), float(peak)) for step in range(1, 5)
    )


def spike(peak: int, seconds: float) -> tuple[Stage, ...]:
    """A tenth of the peak, all of it for the middle fifth, a tenth again."""
    calm = max(peak // 10, 1)
    return (
        Stage(seconds * 0.4, calm, float(peak)),
        Stage(seconds * 0.6, peak, float(peak)),
        Stage(seconds, calm, float(peak)),
    )


def ramp(peak: int, seconds: float) -> tuple[Stage, ...]:
    """Grow evenly to the peak over half of the time, then hold it."""
    return (Stage(seconds, peak, max(peak / (seconds / 2), 0.1)),)


SHAPES: Mapping[str, Callable[[int, float], tuple[Stage, ...]]] = {
    "steps": steps,
    "spike": spike,
    "ramp": ramp,
}


class StagedShape(LoadTestShape):
    """Follows the table `--shape` names."""

    abstract: ClassVar[bool] = False
    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Return the users and the rate of this moment; None ends the test."""
        clock: Any = self
        stage = stage_at(self._stages(), clock.get_run_time())
        return None if stage is None else (stage.users, stage.rate)

    def _stages(self) -> tuple[Stage, ...]:
        if self.runner is None:
            return ()
        options: Any = self.runner.environment.parsed_options
        peak = options.num_users or DEFAULT_PEAK
        return SHAPES[options.shape](peak, _seconds(options.run_time))


def _seconds(run_time: object) -> float:
    """Locust keeps the text of `--run-time` in some of its processes and the number in others."""
    if run_time is None:
        return DEFAULT_SECONDS
    parse: Any = timespan.parse_timespan
    return float(parse(run_time) if isinstance(run_time, str) else str(run_time))


def _add_arguments(parser: LocustArgumentParser, **_: object) -> None:
    parser.add_argument("--shape", default="steps", choices=sorted(SHAPES), help="load shape")


hooks: Any = events
hooks.init_command_line_parser.add_listener(_add_arguments)
