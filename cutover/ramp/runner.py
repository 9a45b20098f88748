"""One runner of a ramp: looks, and makes the step that follows from each look."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from contract.errors import CutoverError
from cutover.ramp.flags import FlagsChanged, FlagsUnavailable, FlagWriter
from cutover.ramp.hooks import CommandHooks, HookFailed, Hooks
from cutover.ramp.machine import (
    Flags,
    Look,
    Plan,
    RampState,
    begin,
    fold,
    reconcile,
    wanted,
)
from cutover.ramp.state import StateStore, StateUnavailable
from evidence.decision import Decision

log = logging.getLogger(__name__)


class WriterFailed(FlagsUnavailable):
    """A writer raised what none should."""

    def __init__(self) -> None:
        super().__init__("the writer of flags", "failed; see the log")


Found = TypeVar("Found")

Decide = Callable[[float, float | None], Decision]
"""Asks the gate about going to a percentage, by what was served since a time in Unix seconds.

None: by everything there is. Whatever it raises is no decision.
"""


class RampClock(Protocol):
    """The time of a ramp."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait; return False where the ramp is to make no more looks."""
        ...


class SystemClock:
    """The machine's clock; `stop` ends a wait, from a signal handler too."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()

    def wait(self, seconds: float) -> bool:
        """Wait, or end at once where the ramp is stopped."""
        return not self._stopped.wait(seconds)

    def stop(self) -> None:
        """End the wait, and the ramp after its look."""
        self._stopped.set()


class Ramp:
    """The ramp of one flow; one process at a time has one (`StateFile.only_runner`).

    No step is made that is not in the state first: a state that cannot be written pauses. The
    rollback alone is made all the same.
    """

    def __init__(
        self,
        state: RampState,
        plan: Plan,
        writer: FlagWriter,
        store: StateStore,
        decide: Decide,
        clock: RampClock,
        hooks: Hooks | None = None,
        *,
        advise: bool = False,
    ) -> None:
        self.state = state
        self._plan = plan
        self._writer = writer
        self._store = store
        self._decide = decide
        self._clock = clock
        self._hooks = hooks or CommandHooks()
        self._advise = advise

    def run(self, report: Callable[[RampState], None]) -> None:
        """Look until the ramp has ended or its clock stops it; `report` gets each look's state."""
        while not self.state.ended:
            began = self._clock.now()
            state = self.look()
            report(state)
            due = self._plan.interval - (self._clock.now() - began)
            wait = min(max(due, 0.0), self._plan.interval)
            if state.ended or not self._clock.wait(wait):
                return

    def look(self) -> RampState:
        """Make one look, and the step that follows from it; return the state after it."""
        try:
            found = _of_writer(self._writer.read)
        except FlagsUnavailable as error:
            return self._end_look(self._paused(str(error)))
        self._reconcile(found)
        if self.state.phase == "running":
            self.state = fold(self.state, self._plan, self._ask_gate())
        new = wanted(self.state, self._plan)
        if new is None:
            return self._end_look(self.state)
        if self._advise:
            step = f"would promote to {new.percent:g} %" if new.enabled else "would roll back"
            advised = msgspec.structs.replace(self.state, phase="running", detail=step)
            return self._end_look(advised)
        return self._end_look(self._step(new))

    def _reconcile(self, found: Flags) -> None:
        before, now = self.state, self._clock.now()
        self.state = reconcile(before, found, now)
        if self._advise and self.state.phase == "stopped":
            self.state = begin(before.flow, found, now)  # a person makes the steps here
        elif before.writing is not None and found == before.writing:
            self._hooks.after(before, found)

    def _ask_gate(self) -> Look:
        state = self.state
        step = self._plan.after(state.flags.share)
        to = state.flags.share if step is None else step
        since = state.since if state.flags.share else None  # before the first step: shadows
        at = self._clock.now()
        try:
            decision = self._decide(to, since)
        except Exception as error:
            # Whatever keeps the gate from deciding, a missing disk or a fault of ours, pauses.
            known = isinstance(error, (CutoverError, OSError))
            log.log(logging.ERROR, "the gate failed: %s", error, exc_info=not known)
            failure = (
                f"the gate cannot decide: {error}" if known else "the gate failed; see the log"
            )
            return self._failed_look(to, failure)
        return Look(at=at, verdict=decision.verdict, reasons=decision.reasons, to=to)

    def _failed_look(self, to: float, failure: str) -> Look:
        return Look(
            at=self._clock.now(), verdict="cannot_tell", reasons=(failure,), to=to, failure=failure
        )

    def _paused(self, why: str) -> RampState:
        """Return the state after a look that learnt nothing; a row of passes ends."""
        if self.state.phase == "running":
            failed = self._failed_look(self.state.flags.share, why)
            return fold(self.state, self._plan, failed)
        return msgspec.structs.replace(self.state, detail=f"not rolled back yet: {why}")

    def _step(self, new: Flags) -> RampState:
        """Write the flags, between their hooks; return the state after it."""
        before = self.state
        intent = msgspec.structs.replace(before, writing=new)
        try:
            if new.enabled:
                self._hooks.before(before, new)
            self._store.save(intent)
        except (HookFailed, StateUnavailable) as error:
            if new.enabled:
                return msgspec.structs.replace(before, detail=f"paused: {error}")
            log.error("%s; rolling back all the same", error)
        self.state = intent
        word = "paused" if new.enabled else "not rolled back yet"
        try:
            _of_writer(lambda: self._writer.write(before.flags, new))
            # A service may answer that it took what it did not: flags in force are the proof.
            found = _of_writer(self._writer.read)
        except FlagsUnavailable as error:
            return msgspec.structs.replace(intent, detail=f"{word}: {error}")
        except FlagsChanged as error:
            return self._changed(error, word)
        if found == before.flags != new:
            detail = f"{word}: {new} were written, and are not in force"
            return msgspec.structs.replace(intent, detail=detail)
        made = reconcile(intent, found, self._clock.now())
        if made.phase == "stopped":
            return made
        # Before the state says that the step is made: after a kill it is run again, not left out.
        self._hooks.after(before, new)
        return made

    def _changed(self, error: FlagsChanged, word: str) -> RampState:
        """Return the state after flags were not as expected: what is there now is a person's."""
        refused = msgspec.structs.replace(self.state, detail=f"{word}: {error}")
        try:
            found = _of_writer(self._writer.read)
        except FlagsUnavailable:
            return refused
        return reconcile(refused, found, self._clock.now())

    def _end_look(self, state: RampState) -> RampState:
        self.state = state
        failure = self._save(state)
        if failure and not state.ended:
            self.state = msgspec.structs.replace(state, detail=f"paused: {failure}")
        return self.state

    def _save(self, state: RampState) -> str:
        """Save the state; return why it could not be, which is logged."""
        try:
            self._store.save(state)
        except StateUnavailable as error:
            log.error("%s", error)
            return str(error)
        return ""


def _of_writer(call: Callable[[], Found]) -> Found:
    """Call a writer, which may be a team's own; a fault of it makes flags unavailable."""
    try:
        return call()
    except (FlagsUnavailable, FlagsChanged):
        raise
    except Exception as error:
        log.exception("flags cannot be read or written")
        raise WriterFailed from error
