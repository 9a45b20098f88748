"""The stamped target, in a process of its own, once for all tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from loadtests.runner import child_environment, module_command

READY_WITHIN = 30


@pytest.fixture(scope="session")
def stamped() -> Iterator[str]:
    """Give the address of a stamped target."""
    with subprocess.Popen(
        module_command("benchmarks.load_truth"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()
        process.wait(READY_WITHIN)
