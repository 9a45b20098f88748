"""Load shapes for Locust: how many users there are when.

    locust -f loadtests/users.py,loadtests/shapes.py --shape spike --users 50 --run-time 60 …

`--users` is the peak of a shape and `--run-time` its length.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from locust import LoadTestShape, events
from locust.argument_parser import LocustArgumentParser
from locust.util import timespan

from loadtests.arrivals import Shape, level

DEFAULT_PEAK = 10
DEFAULT_SECONDS = 60.0


class LevelShape(LoadTestShape):
    """Follows the levels of the shape that `--shape` names."""

    abstract: ClassVar[bool] = False
    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Return the users of this moment and the rate of change; None ends the test."""
        if self.runner is None:
            return None
        options: Any = self.runner.environment.parsed_options
        clock: Any = self
        at = clock.get_run_time() / _seconds(options.run_time)
        peak = options.num_users or DEFAULT_PEAK
        return (max(round(peak * level(options.shape, at)), 1), peak) if at < 1 else None


def _seconds(run_time: object) -> float:
    """Locust keeps the text of `--run-time` in some of its processes and the number in others."""
    if run_time is None:
        return DEFAULT_SECONDS
    parse: Any = timespan.parse_timespan
    return float(parse(run_time) if isinstance(run_time, str) else str(run_time))


def _add_arguments(parser: LocustArgumentParser, **_: object) -> None:
    parser.add_argument("--shape", default="steps", choices=get_args(Shape), help="load shape")


hooks: Any = events
hooks.init_command_line_parser.add_listener(_add_arguments)
