"""Where a ramp's state is: one file a flow, with the lock of its only runner beside it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from contract.errors import CutoverError
from cutover.ramp.machine import RampState
from effects.files import write_whole


class StateUnavailable(CutoverError):
    """The state of a ramp cannot be read or written."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"the state {path} {why}")


class RampRuns(CutoverError):
    """Another process runs the ramp of this flow."""

    def __init__(self, flow: str, lock: Path) -> None:
        super().__init__(f"the ramp of {flow!r} runs already: another process holds {lock}")


class StateStore(Protocol):
    """Has the state of one flow's ramp; both methods raise `StateUnavailable`."""

    def load(self) -> RampState | None:
        """Return the state; None before the first ramp."""
        ...

    def save(self, state: RampState) -> None:
        """Replace the state, on the disk when this returns."""
        ...


@dataclass(slots=True)
class MemoryState:
    """A state in memory: of a ramp that advises, and the fake in tests.

    `fault` is raised by every call while it is set.
    """

    state: RampState | None = None
    fault: StateUnavailable | None = None

    def load(self) -> RampState | None:
        """Return the state."""
        if self.fault is not None:
            raise self.fault
        return self.state

    def save(self, state: RampState) -> None:
        """Replace the state."""
        if self.fault is not None:
            raise self.fault
        self.state = state


@dataclass(frozen=True, slots=True)
class StateFile:
    """The state as JSON in a folder: `<flow>.json`, whole at every moment."""

    folder: Path
    flow: str

    @property
    def path(self) -> Path:
        """The file, for readers as well."""
        return self.folder / f"{self.flow}.json"

    def load(self) -> RampState | None:
        """Read the file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=RampState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StateUnavailable(self.path, f"cannot be read: {error}") from error

    def save(self, state: RampState) -> None:
        """Replace the file."""
        try:
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(state)) + b"\n")
        except OSError as error:
            raise StateUnavailable(self.path, f"cannot be written: {error.strerror}") from error

    @contextmanager
    def only_runner(self) -> Iterator[None]:
        """Hold the lock of the flow's ramp, which the system releases with the process.

        Raises `RampRuns`, and `StateUnavailable` where the folder cannot be made.
        """
        lock = self.folder / f".{self.flow}.lock"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = lock.open("a", encoding="utf-8")
        except OSError as error:
            raise StateUnavailable(lock, f"cannot be opened: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RampRuns(self.flow, lock) from None
            yield
