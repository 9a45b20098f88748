"""What a ramp never does, for any sequence of verdicts, edits, failures, kills and restarts."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cutover.ramp.flags import FakeFlags, FlagsUnavailable
from cutover.ramp.hooks import HookFailed
from cutover.ramp.machine import Flags, Plan, RampState, begin
from cutover.ramp.runner import Ramp
from cutover.ramp.state import MemoryState, RampRuns, StateFile, StateUnavailable
from evidence.decision import Decision, Verdict
from tests.support.ramps import RampTime, decision

pytestmark = pytest.mark.slow

PLAN = Plan(steps=(1.0, 5.0, 25.0, 100.0), hold=100.0, passes=2, interval=60.0)
VERDICTS: tuple[Verdict | None, ...] = (
    *("promote", "promote", "promote", "promote"),
    *("hold", "rollback", "cannot_tell", None),
)
Point = Literal["before save", "after save", "before write", "after write", "before hook", ""]
POINTS: tuple[Point, ...] = (
    *("before save", "after save", "before write", "after write", "before hook"),
)


class Killed(BaseException):
    """The process ended here."""


class World(RuleBasedStateMachine):
    """One flow, its flags and a disk; a process that comes and goes, and a person."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.folder = Path(self.opened.enter_context(tempfile.TemporaryDirectory()))
        self.process = ExitStack()
        self.time = RampTime()
        self.disk = MemoryState()
        self.flags = FakeFlags()
        self.ramp: Ramp | None = None
        self.verdict: Verdict | None = "promote"
        self.row = self.row_on_disk = 0
        self.rolled_back = self.rollback_stored = False
        self.unanswered = False
        self.kill_at: Point = ""
        self.kill_after = 0
        self.hook_fails = False
        self.ours: set[Flags] = set()
        self.stepped_at = self.time.now()

    def teardown(self) -> None:
        """Release everything."""
        self.process.close()
        self.opened.close()

    # What the ramp uses, with the places where it can be killed.

    def _point(self, name: Point) -> None:
        if name == self.kill_at:
            self.kill_after -= 1
            if self.kill_after < 0:
                raise Killed

    def check(self) -> None:
        """Flags of this world can be written."""

    def read(self) -> Flags:
        """Read the flags."""
        return self.flags.read()

    def write(self, expected: Flags, new: Flags) -> None:
        """Write the flags: here is what must never happen."""
        self._point("before write")
        found = self.flags.flags
        if found == expected and self.flags.fault is None:
            assert found in self.ours, "a person's change is overwritten"
            if new.enabled:
                assert not self.rolled_back, "promoted past a rollback"
                assert self.verdict == "promote"
                assert self.row >= PLAN.passes
                if found.share:
                    assert self.time.now() - self.stepped_at >= PLAN.hold
                assert self.disk.state is not None
                assert self.disk.state.writing == new, "a step that is not in the state"
            self.ours = {new}
            self.stepped_at = self.time.now()
            self.rollback_stored = self.rolled_back
            self.unanswered = bool(self.flags.lost_answers)
        self.flags.write(expected, new)
        self._point("after write")

    def load(self) -> RampState | None:
        """Read the disk."""
        return self.disk.load()

    def save(self, state: RampState) -> None:
        """Write the disk."""
        self._point("before save")
        self.disk.save(state)
        self.row_on_disk, self.rollback_stored = self.row, self.rolled_back
        self._point("after save")

    def before(self, state: RampState, new: Flags) -> None:
        """Run the hook before a step."""
        del state, new
        self._point("before hook")
        if self.hook_fails:
            raise HookFailed(("false",), "ended with status 1")

    def after(self, state: RampState, new: Flags) -> None:
        """Run the hook after a step."""

    def decide(self, to: float, since: float | None) -> Decision:
        """Return the verdict of this look."""
        del since
        self.rolled_back = self.rolled_back or self.verdict == "rollback"
        if self.verdict is None:
            self.row = 0
            message = "the disk is gone"
            raise OSError(message)
        self.row = self.row + 1 if self.verdict == "promote" else 0
        return decision(self.verdict, to)

    # What happens.

    @initialize(percent=st.sampled_from([0.0, 1.0, 7.0, 25.0]), enabled=st.booleans())
    def begin(self, percent: float, enabled: bool) -> None:
        """A person starts the ramp."""
        self.flags.flags = Flags(enabled=enabled, percent=percent)
        self.ours, self.stepped_at = {self.flags.flags}, self.time.now()
        self.disk.state = begin("chat", self.flags.flags, self.time.now())
        self.start()

    @precondition(lambda self: self.ramp is None)
    @rule()
    def start(self) -> None:
        """Start the process; from its state."""
        try:
            state = self.load()
        except StateUnavailable:
            return
        assert state is not None
        self.process.enter_context(StateFile(self.folder, "chat").only_runner())
        self.ramp = Ramp(state, PLAN, self, self, self.decide, self.time, self)

    @precondition(lambda self: self.ramp is not None)
    @rule()
    def start_another(self) -> None:
        """A second process is refused."""
        with pytest.raises(RampRuns), StateFile(self.folder, "chat").only_runner():
            pass

    @precondition(lambda self: self.ramp is not None and not self.ramp.state.ended)
    @rule(verdict=st.sampled_from(VERDICTS))
    def look(self, verdict: Verdict | None) -> None:
        """The ramp looks once."""
        assert self.ramp is not None
        self.verdict = verdict
        was = self.flags.flags
        theirs = was not in self.ours
        try:
            after = self.ramp.look()
        except Killed:
            self._end_process()
            return
        if self.flags.fault is None and theirs:
            assert after.phase == "stopped"
        if theirs or self.flags.fault or after.detail.startswith("paused"):
            assert self.flags.flags == was or self.unanswered

    @precondition(lambda self: self.ramp is not None and not self.ramp.state.ended)
    @rule(verdict=st.sampled_from(VERDICTS), count=st.integers(2, 6))
    def looks(self, verdict: Verdict | None, count: int) -> None:
        """The ramp looks a few times, at its interval."""
        for _ in range(count):
            if self.ramp is not None and not self.ramp.state.ended:
                self.look(verdict)
                self.wait(PLAN.interval)

    @precondition(lambda self: self.ramp is not None and self.ramp.state.ended)
    @rule()
    def begin_again(self) -> None:
        """A person starts the next ramp, from what is there."""
        self._end_process()
        self.row = self.row_on_disk = 0
        self.rolled_back = self.rollback_stored = False
        self.disk.fault = None
        self.begin(self.flags.flags.percent, enabled=self.flags.flags.enabled)

    @rule(seconds=st.sampled_from([1.0, 60.0, 1_000.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.time.time += seconds

    @rule(percent=st.sampled_from([0.0, 1.0, 5.0, 25.0, 30.0]), enabled=st.booleans())
    def person_edits(self, percent: float, enabled: bool) -> None:
        """A person turns the flags."""
        self.flags.flags = Flags(enabled=enabled, percent=percent)

    @rule(point=st.sampled_from(POINTS), after=st.integers(0, 2))
    def plan_a_kill(self, point: Point, after: int) -> None:
        """The process will be killed at a point."""
        self.kill_at, self.kill_after = point, after

    @rule()
    def kill(self) -> None:
        """The process is killed between two looks."""
        self._end_process()

    @rule(gone=st.booleans())
    def disk_fails(self, gone: bool) -> None:
        """The disk of the state goes, or comes back."""
        self.disk.fault = StateUnavailable("disk", "is gone") if gone else None

    @rule(gone=st.booleans())
    def flags_fail(self, gone: bool) -> None:
        """The flags cannot be reached, or can again."""
        self.flags.fault = FlagsUnavailable("service", "is gone") if gone else None

    @rule()
    def answer_is_lost(self) -> None:
        """The next write counts, and its answer is lost."""
        self.flags.lost_answers = 1

    @rule(fails=st.booleans())
    def hook_breaks(self, fails: bool) -> None:
        """The hook before a step fails, or works again."""
        self.hook_fails = fails

    def _end_process(self) -> None:
        """End the process, and with it what it alone knew."""
        self.process.close()
        self.ramp, self.kill_at = None, ""
        self.row, self.rolled_back = self.row_on_disk, self.rollback_stored


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
