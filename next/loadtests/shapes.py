"""A shape for `locust -f loadtests/locustfile.py,loadtests/shapes.py -u 50 -t 10m`."""

from __future__ import annotations

from typing import Any

from locust import LoadTestShape

STEPS = 5


class Stairs(LoadTestShape):
    """Goes up to `--users` in five steps of equal length, over `--run-time`."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Return the users of the step that has begun, and how many a second to start."""
        options: Any = self.runner.environment.parsed_options if self.runner else None
        users, seconds = options.users or STEPS, options.run_time or 60 * STEPS
        step = int(self.get_run_time() * STEPS // seconds) + 1
        if step > STEPS:
            return None
        return max(1, users * step // STEPS), options.spawn_rate or users
