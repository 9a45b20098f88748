"""Load shapes are tables; importing Locust here would patch this process, so a child does it."""

from __future__ import annotations

import subprocess

import pytest

from loadtests.processes import child_environment, module_command
from tests.support.patience import PATIENCE_S

PROGRAM = """
import json
from loadtests.shapes import SHAPES, stage_at
moments = (0, 20, 35, 50, 59.9, 60)
users = lambda shape, at: (stage_at(shape(40, 60.0), at) or type("", (), {"users": None})).users
print(json.dumps({name: [users(shape, at) for at in moments] for name, shape in SHAPES.items()}))
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
        '{"steps": [10, 20, 30, 40, 40, null], '
        '"spike": [4, 4, 40, 4, 4, null], '
        '"ramp": [40, 40, 40, 40, 40, null]}'
    )
