"""The first user of a process waits no longer than the next one."""

import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT


@pytest.mark.slow
def test_the_first_run_of_a_process_imports_nothing() -> None:
    """All the engine needs was imported with the stack, for a round of tools and an answer."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.graph_impl.first_run"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["Success(content='t')"]
