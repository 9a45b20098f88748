"""The processes a demonstration needs: a simulated provider and a router, on free ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ANNOUNCED = "cutover listening on "
_PATIENCE = 30.0


class RouterDidNotStart(CutoverError):
    """The router's process ended before it said where it listens."""

    def __init__(self, log: Path) -> None:
        super().__init__(f"the router did not start; its log is {str(log)!r}")


@contextmanager
def router(config: Path, log: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Start a router, give its address, and stop it gracefully on leaving.

    Raises:
        RouterDidNotStart: it did not say where it listens.
    """
    command = [sys.executable, "-m", "cutover", "serve", "--config", str(config), "--port", "0"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **environ},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield _address(process, log)
        finally:
            _stop(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    said = process.stdout.readline().decode() if process.stdout is not None else ""
    if not said.startswith(_ANNOUNCED):
        raise RouterDidNotStart(log)
    return said.removeprefix(_ANNOUNCED).strip()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
