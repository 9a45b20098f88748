"""Commands of an installation without the extras `compare`, `load` and `workers`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cutover.cli import COMMANDS, UNAVAILABLE
from loadtests.processes import child_environment

pytestmark = pytest.mark.slow

RUN = """
import sys

for library in ("scipy", "deepdiff", "pandas", "locust", "gevent", "taskiq"):
    sys.modules[library] = None
from cutover.cli import app

for command in {commands}:
    try:
        app([*command.split(), "--help"])
    except SystemExit as end:
        print("ended", command, end.code)
"""


def ended(commands: list[str]) -> tuple[dict[str, int], str]:
    """Return the exit status of each command's help, and what was printed to standard error."""
    run = subprocess.run(
        [sys.executable, "-c", RUN.format(commands=commands)],
        check=True,
        capture_output=True,
        text=True,
        env=child_environment(),
    )
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("ended ")]
    return {" ".join(line[1:-1]): int(line[-1]) for line in lines}, run.stderr


def test_commands_that_name_no_extra_start_without_one() -> None:
    """A router is served, probed and rolled back where nothing is analysed."""
    commands = [name for name, place in COMMANDS.items() if not place.extra]
    found, complaints = ended(commands)
    assert found == dict.fromkeys(commands, 0), complaints


def test_commands_that_need_an_extra_name_it() -> None:
    """The error says what to install, and its status is none of a verdict's."""
    commands = [name for name, place in COMMANDS.items() if place.extra]
    found, complaints = ended(commands)
    assert found == dict.fromkeys(commands, UNAVAILABLE)
    assert "'cutover diff' needs the extra 'compare': pip install 'cutover[compare]'" in complaints
    assert "'cutover load' needs the extra 'load': pip install 'cutover[load]'" in complaints
