"""Locust follows the levels; importing it here would patch this process, so a child does it."""

from __future__ import annotations

import subprocess

import pytest

from loadtests.processes import child_environment, module_command
from tests.support.patience import PATIENCE_S

PROGRAM = """
import json
from types import SimpleNamespace as Any
from typing import get_args
from loadtests.shapes import LevelShape, Shape

def users(name, at):
    shape = LevelShape()
    options = Any(shape=name, num_users=40, run_time="60s")
    shape.runner = Any(environment=Any(parsed_options=options))
    shape.get_run_time = lambda: at
    return (shape.tick() or (None,))[0]

moments = (0, 20, 35, 50, 59.9, 60)
print(json.dumps({name: [users(name, at) for at in moments] for name in get_args(Shape)}))
"""


@pytest.mark.slow
def test_shapes_reach_their_peak_and_end() -> None:
    """Users at 0, 20, 35, 50 and 59.9 s of a minute with a peak of forty; then none."""
    python, *_ = module_command("locust")
    done = subprocess.run(
        [python, "-c", PROGRAM],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.strip() == (
        '{"flat": [40, 40, 40, 40, 40, null], '
        '"steps": [10, 20, 30, 40, 40, null], '
        '"ramp": [1, 27, 40, 40, 40, null], '
        '"spike": [4, 4, 40, 4, 4, null], '
        '"soak": [1, 40, 40, 40, 40, null]}'
    )
