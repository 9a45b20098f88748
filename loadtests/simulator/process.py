"""The simulator in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from contract.errors import CutoverError
from loadtests.simulator.profile import Profile, to_arguments

ANNOUNCED = "listening on "
PATIENCE_S = 5.0


class SimulatorDidNotStart(CutoverError):
    """The process ended, or said something else, before it said where it listens."""

    def __init__(self, command: list[str], said: str) -> None:
        super().__init__(f"the simulator {command!r} did not start; its first line was {said!r}")


@contextmanager
def spawn(profile: Profile | None = None, port: int = 0, *extra: str) -> Iterator[str]:
    """Start a simulator on loopback, give its address, end it on leaving.

    `extra` are more options of `python -m loadtests.simulator`.

    Raises:
        SimulatorDidNotStart: it did not say where it listens.
    """
    options = ["--port", str(port), *to_arguments(profile or Profile()), *extra]
    command = [sys.executable, "-m", "loadtests.simulator", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield _address(process, command)
        finally:
            _end(process)


def _address(process: subprocess.Popen[str], command: list[str]) -> str:
    said = process.stdout.readline() if process.stdout is not None else ""
    if not said.startswith(ANNOUNCED):
        raise SimulatorDidNotStart(command, said)
    return said.removeprefix(ANNOUNCED).strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
