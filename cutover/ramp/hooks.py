"""Commands of a team before and after each step of a ramp."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from contract.errors import CutoverError
from cutover.ramp.machine import Flags, RampState

log = logging.getLogger(__name__)


class HookFailed(CutoverError):
    """A command did not end with 0 in its time."""

    def __init__(self, command: tuple[str, ...], why: str) -> None:
        super().__init__(f"the hook {' '.join(command)!r} {why}")


class Hooks(Protocol):
    """What is called around a step."""

    def before(self, state: RampState, new: Flags) -> None:
        """Called before a promotion; raises `HookFailed` to pause it."""
        ...

    def after(self, state: RampState, new: Flags) -> None:
        """Called after a promotion or a rollback; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class CommandHooks:
    """Commands, never in a shell; () is none. What they print goes to the ramp's own output."""

    before_command: tuple[str, ...] = ()
    after_command: tuple[str, ...] = ()
    seconds: float = 60.0

    def before(self, state: RampState, new: Flags) -> None:
        """Run the command; it may be run again for a step that was not made."""
        self._run(self.before_command, state, new)

    def after(self, state: RampState, new: Flags) -> None:
        """Run the command; the step is made, so a failure is only logged."""
        try:
            self._run(self.after_command, state, new)
        except HookFailed as failed:
            log.error("%s; the step stays", failed)

    def _run(self, command: tuple[str, ...], state: RampState, new: Flags) -> None:
        if not command:
            return
        environ = {**os.environ, **_variables(state, new)}
        try:
            process = subprocess.Popen(command, env=environ, start_new_session=True)  # noqa: S603 - no shell
        except OSError as error:
            raise HookFailed(command, f"cannot be started: {error.strerror}") from error
        try:
            status = process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            raise HookFailed(command, f"had not ended after {self.seconds:g} s") from None
        finally:
            with suppress(ProcessLookupError):  # with all it started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status:
            raise HookFailed(command, f"ended with status {status}")


def _variables(state: RampState, new: Flags) -> Mapping[str, str]:
    """Return what a hook learns of a step."""
    return {
        "CUTOVER_FLOW": state.flow,
        "CUTOVER_STEP": "promote" if new.enabled else "rollback",
        "CUTOVER_FROM": f"{state.flags.share:g}",
        "CUTOVER_TO": f"{new.share:g}",
        "CUTOVER_REASONS": "\n".join(state.look.reasons if state.look else ()),
    }
