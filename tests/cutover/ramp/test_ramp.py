"""A ramp, look by look: its steps, its pauses, its ends, and what a restart finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract.errors import CutoverError
from cutover.ramp.flags import FakeFlags, FlagsChanged, FlagsUnavailable
from cutover.ramp.hooks import CommandHooks
from cutover.ramp.machine import Flags, Plan, RampState, begin
from cutover.ramp.runner import Ramp
from cutover.ramp.state import MemoryState, RampRuns, StateFile, StateUnavailable
from evidence.decision import Verdict
from tests.support.ramps import RampTime, ScriptedGate

PLAN = Plan(steps=(1.0, 5.0, 25.0, 50.0, 100.0), hold=600.0, passes=3, interval=60.0)


class Scene:
    """A flow at a percentage, a gate, and a ramp that can be started again."""

    def __init__(self, percent: float = 0.0, *verdicts: Verdict | Exception) -> None:
        self.time = RampTime()
        self.flags = FakeFlags(Flags(enabled=True, percent=percent))
        self.store = MemoryState()
        self.gate = ScriptedGate([*(verdicts or ("promote",))])
        self.seen: list[RampState] = []
        state = begin("chat", self.flags.flags, self.time.now())
        self.ramp = self.started(state)

    def started(self, state: RampState, **more: Any) -> Ramp:
        """Start a process with a state."""
        parts = (state, PLAN, self.flags, self.store, self.gate, self.time)
        self.ramp = Ramp(*parts, **more)
        return self.ramp

    def looks(self, count: int) -> RampState:
        """Look a few times, at the interval."""
        self.time.waits.clear()
        self.time.looks = count
        self.ramp.run(self.seen.append)
        return self.ramp.state


def test_equal_stacks_reach_everything_in_the_time_of_the_plan() -> None:
    """Five steps, each held for ten minutes after three passes for the first."""
    scene = Scene(0.0, "promote")
    began = scene.time.now()
    assert scene.looks(1_000).phase == "done"
    shares = [one.flags.share for one in scene.seen]
    assert list(dict.fromkeys(shares)) == [0.0, 1.0, 5.0, 25.0, 50.0, 100.0]
    assert scene.time.now() - began == 2 * 60 + 5 * 600
    assert scene.ramp.state.detail == "done: 100 % on graph"


def test_the_gate_is_asked_by_what_was_served_at_the_step() -> None:
    """Before the first step by everything: the shadows of weeks count."""
    scene = Scene()
    began = scene.time.now()
    scene.looks(4)
    assert scene.gate.asked == [(1.0, None)] * 3 + [(5.0, began + 2 * 60)]


@pytest.mark.parametrize("verdict", ["cannot_tell", "hold", CutoverError("x"), ValueError("bug")])
def test_only_promote_promotes(verdict: Verdict | Exception) -> None:
    """However long it lasts, and whatever the gate raises."""
    scene = Scene(25.0, verdict)
    state = scene.looks(100)
    assert (state.phase, scene.flags.flags.percent, state.passes) == ("running", 25.0, 0)
    assert state.detail.startswith("paused: ")
    assert "bug" not in state.detail


def test_passes_are_consecutive() -> None:
    """One look in between that cannot tell begins the row again."""
    scene = Scene(0.0, "promote", "promote", "cannot_tell", "promote", "promote", "promote", "hold")
    assert scene.looks(5).flags.percent == 0.0
    assert scene.looks(1).flags.percent == 1.0


def test_a_rollback_switches_off_at_once() -> None:
    """Not 0 %: pinned conversations leave, too; the percentage stays for the next attempt."""
    scene = Scene(25.0, "promote", "rollback", "promote")
    state = scene.looks(100)
    assert (state.phase, len(scene.seen)) == ("rolled_back", 2)
    assert scene.flags.flags == Flags(enabled=False, percent=25.0)
    assert scene.store.state == state
    assert state.look is not None
    assert state.look.reasons == ("the test says rollback",)


def test_a_rollback_is_made_where_the_state_cannot_be_written() -> None:
    """Only promotions wait for the disk."""
    scene = Scene(25.0, "rollback")
    scene.store.fault = StateUnavailable("disk", "is full")
    assert scene.looks(1).phase == "rolled_back"
    assert not scene.flags.flags.enabled


def test_a_rollback_is_tried_until_it_is_made() -> None:
    """Also after a restart, and whatever the gate says by then."""
    scene = Scene(25.0, "rollback", "promote")
    scene.flags.write_fault = FlagsUnavailable("the file", "is locked")
    state = scene.looks(5)
    assert (state.phase, scene.flags.flags.enabled) == ("rolling_back", True)
    assert state.detail == "not rolled back yet: the file is locked"
    scene.flags.write_fault = None
    assert scene.store.state is not None
    scene.started(scene.store.state)
    assert scene.looks(1).phase == "rolled_back"
    assert len(scene.gate.asked) == 1


@pytest.mark.parametrize(
    "found",
    [
        Flags(enabled=True, percent=30.0),
        Flags(enabled=True, percent=5.0),
        Flags(enabled=False, percent=25.0),
    ],
)
def test_a_persons_change_stops_the_ramp(found: Flags) -> None:
    """Either flag, up or down; it stays as it is."""
    scene = Scene(25.0, "cannot_tell")
    scene.looks(2)
    scene.flags.flags = found
    state = scene.looks(1)
    assert (state.phase, scene.flags.flags) == ("stopped", found)
    assert state.detail == (
        f"changed by someone else: found {found}, the ramp had left "
        "enable_langgraph = true, langgraph_percent = 25"
    )


def test_a_person_who_is_faster_than_the_write_wins() -> None:
    """The edit falls between the look and its step."""
    scene, edited = Scene(0.0, "promote"), Flags(enabled=True, percent=10.0)

    class Late(CommandHooks):
        def before(self, state: RampState, new: Flags) -> None:
            del state, new
            scene.flags.flags = edited

    scene.started(scene.ramp.state, hooks=Late())
    assert (scene.looks(3).phase, scene.flags.flags) == ("stopped", edited)


def test_no_step_without_a_state_on_disk() -> None:
    """It pauses, says why, and goes on when the disk is back."""
    scene = Scene(0.0, "promote")
    scene.store.fault = StateUnavailable("var/ramp/chat.json", "cannot be written: disk full")
    state = scene.looks(10)
    assert scene.flags.flags.percent == 0.0
    assert "disk full" in state.detail
    scene.store.fault = None
    assert scene.looks(1).flags.percent == 1.0


def test_flags_that_cannot_be_read_pause() -> None:
    """And begin the row of passes again."""
    scene = Scene(0.0, "promote")
    scene.looks(2)
    scene.flags.fault = FlagsUnavailable("cutover.toml", "cannot be read")
    state = scene.looks(1)
    assert (state.detail, state.passes) == (
        "paused: cutover.toml cannot be read; no step yet, 0 of 3 passes",
        0,
    )


def test_a_restart_loses_no_holding_time_and_skips_none() -> None:
    """Five of ten minutes were held; hours without a process add two intervals at most."""
    scene = Scene(25.0, "promote")
    scene.looks(6)
    assert scene.store.state is not None
    assert scene.store.state.held == 300.0
    scene.time.time += 36_000
    scene.started(scene.store.state)
    assert scene.looks(1).held == 300.0 + 120.0
    assert scene.looks(2).flags.percent == 25.0
    assert scene.looks(1).flags.percent == 50.0


def test_a_clock_that_goes_back_holds_longer() -> None:
    """Time never counts twice, and never backwards."""
    scene = Scene(25.0, "promote")
    scene.looks(6)
    scene.time.time -= 3_600
    assert scene.looks(1).held == 300.0


def test_a_step_whose_answer_was_lost_is_found_in_the_flags() -> None:
    """As after a kill in the middle of it; its holding time begins when it is found."""
    scene = Scene(0.0, "promote")
    scene.looks(2)
    scene.flags.lost_answers = 1
    state = scene.looks(1)
    assert (state.flags.percent, state.writing) == (0.0, Flags(enabled=True, percent=1.0))
    assert scene.store.state == state
    state = scene.started(state).look()
    assert (state.flags.percent, state.held, state.writing) == (1.0, 0.0, None)


class Deaf(FakeFlags):
    """A service that confirms each write, and goes on as before."""

    def write(self, expected: Flags, new: Flags) -> None:
        """Take no notice."""


@pytest.mark.parametrize(
    ("verdict", "phase"), [("rollback", "rolling_back"), ("promote", "running")]
)
def test_a_step_that_is_not_in_force_is_not_made(verdict: Verdict, phase: str) -> None:
    """Else a rollback would be reported while graph serves."""
    scene = Scene(25.0, verdict)
    honest, scene.flags = scene.flags, Deaf(scene.flags.flags)
    scene.started(scene.ramp.state)
    state = scene.looks(15)
    assert (state.phase, state.flags.percent) == (phase, 25.0)
    assert "not in force" in state.detail
    scene.flags = honest
    scene.started(state)
    assert scene.looks(1).flags != Flags(enabled=True, percent=25.0)


class Conflicting(FakeFlags):
    """A service that refuses each write as a conflict, though nothing has changed."""

    def write(self, expected: Flags, new: Flags) -> None:
        """Refuse."""
        raise FlagsChanged(self, f"another tag: {expected}, not {new}")


@pytest.mark.parametrize(
    ("verdict", "word"), [("rollback", "not rolled back yet: "), ("promote", "paused: ")]
)
def test_a_conflict_that_is_none_is_named(verdict: Verdict, word: str) -> None:
    """And the step is tried again."""
    scene = Scene(25.0, verdict)
    scene.flags = Conflicting(scene.flags.flags)
    scene.started(scene.ramp.state)
    state = scene.looks(15)
    assert not state.ended
    assert state.detail.startswith(word)
    assert "another tag" in state.detail


class Slow(FakeFlags):
    """A service that does not answer a promotion, and makes it when a test says so."""

    def write(self, expected: Flags, new: Flags) -> None:
        """Make a rollback only."""
        if new.enabled:
            raise FlagsUnavailable(self, "does not answer")
        super().write(expected, new)


@pytest.mark.parametrize(("verdict", "phase"), [("hold", "running"), ("rollback", "rolled_back")])
def test_a_step_that_comes_in_force_late_is_the_ramps_own(verdict: Verdict, phase: str) -> None:
    """Else the ramp would stop as at a person's change, with a rollback to make."""
    passes: list[Verdict] = ["promote"] * 12
    scene = Scene(25.0, *passes, "hold", verdict)
    slow = scene.flags = Slow(scene.flags.flags)
    scene.started(scene.ramp.state)
    state = scene.looks(13)
    assert (state.phase, state.flags.percent) == ("running", 25.0)
    slow.flags = Flags(enabled=True, percent=50.0)
    state = scene.looks(1)
    assert (state.phase, state.flags.percent) == (phase, 50.0)
    assert slow.flags.enabled is (phase == "running")


class SlowAgain(Slow):
    """The promotion comes in force just before the rollback is written."""

    def write(self, expected: Flags, new: Flags) -> None:
        """Be overtaken once."""
        if not new.enabled and self.flags.percent < 50:
            self.flags = Flags(enabled=True, percent=50.0)
        Slow.write(self, expected, new)


def test_a_late_step_does_not_end_a_rollback() -> None:
    """It is made from where the late step has left the flags."""
    passes: list[Verdict] = ["promote"] * 12
    scene = Scene(25.0, *passes, "rollback")
    overtaken = scene.flags = SlowAgain(scene.flags.flags)
    scene.started(scene.ramp.state)
    assert scene.looks(14).phase == "rolled_back"
    assert overtaken.flags == Flags(enabled=False, percent=50.0)


class Broken(FakeFlags):
    """A team's own writer, with a bug."""

    def read(self) -> Flags:
        """Fail in a way that no writer should."""
        raise TypeError


def test_a_writer_that_crashes_pauses() -> None:
    """The ramp goes on where it was when the writer works again."""
    scene = Scene(25.0, "rollback")
    honest, scene.flags = scene.flags, Broken(scene.flags.flags)
    scene.started(scene.ramp.state)
    state = scene.looks(2)
    assert state.phase == "running"
    assert state.detail.startswith("paused: the writer of flags failed")
    scene.flags = honest
    scene.started(state)
    assert scene.looks(1).phase == "rolled_back"


def test_advice_writes_nothing_and_follows_a_person() -> None:
    """It says what it would do; the steps are a person's."""
    scene = Scene(0.0, "promote", "promote", "promote", "cannot_tell", "rollback")
    scene.started(scene.ramp.state, advise=True)
    assert scene.looks(3).detail == "would promote to 1 %"
    assert scene.flags.flags.percent == 0.0
    scene.flags.flags = Flags(enabled=True, percent=1.0)
    state = scene.looks(1)
    assert (state.phase, state.flags.percent) == ("running", 1.0)
    state = scene.looks(2)
    assert (state.detail, scene.flags.flags.enabled) == ("would roll back", True)


def test_a_ramp_begins_at_the_next_step_above_what_is_there() -> None:
    """30 % turned by hand goes to 50; off begins at the first."""
    scene = Scene(30.0, "promote")
    assert scene.looks(11).flags.percent == 50.0
    scene = Scene(30.0, "promote")
    scene.flags.flags = Flags(enabled=False, percent=30.0)
    scene.started(begin("chat", scene.flags.flags, scene.time.now()))
    assert scene.looks(3).flags == Flags(enabled=True, percent=1.0)


def test_the_last_step_is_held_and_can_still_be_rolled_back() -> None:
    """At 100 % the gate has nothing to compare, which pauses nothing any more."""
    scene = Scene(100.0, "cannot_tell")
    assert scene.looks(10).phase == "running"
    assert scene.looks(1).phase == "done"
    scene = Scene(100.0, "cannot_tell", "rollback")
    assert scene.looks(2).phase == "rolled_back"


def hook(folder: Path, text: str) -> tuple[str, ...]:
    """Return a command: a program for the shell, which is no part of how hooks are run."""
    return ("/bin/sh", "-c", f"{text} >> {folder}/hooks")


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("verdict", ["promote", "rollback"])
def test_a_kill_around_the_hook_after_a_step_leaves_it_to_the_next_process(
    verdict: Verdict,
) -> None:
    """A rollback that nobody is told of is worse than one that is announced twice."""
    scene = Scene(0.0, verdict)
    told: list[Flags] = []

    class Telling(CommandHooks):
        def after(self, state: RampState, new: Flags) -> None:
            told.append(new)
            assert state.flags == Flags(enabled=True, percent=0.0)
            if len(told) == 1:
                raise Killed

    scene.started(scene.ramp.state, hooks=Telling())
    with pytest.raises(Killed):
        scene.looks(5)
    assert scene.store.state is not None
    scene.started(scene.store.state, hooks=Telling())
    scene.looks(1)
    assert told == [scene.flags.flags] * 2


def test_hooks_learn_of_each_step(tmp_path: Path) -> None:
    """Both by variables, the one after a rollback as well."""
    told = "echo NAME $CUTOVER_FLOW $CUTOVER_STEP $CUTOVER_FROM $CUTOVER_TO $CUTOVER_REASONS"
    hooks = CommandHooks(
        hook(tmp_path, told.replace("NAME", "before")),
        hook(tmp_path, told.replace("NAME", "after")),
    )
    scene = Scene(0.0, "promote", "promote", "promote", "rollback")
    scene.started(scene.ramp.state, hooks=hooks)
    scene.looks(4)
    assert (tmp_path / "hooks").read_text("utf-8").splitlines() == [
        "before chat promote 0 1 the test says promote",
        "after chat promote 0 1 the test says promote",
        "after chat rollback 1 0 the test says rollback",
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/bin/sh", "-c", "exit 3"), "ended with status 3"),
        (("/bin/sh", "-c", "sleep 60 & sleep 60"), "had not ended after 0.05 s"),
        (("/no/such/program",), "cannot be started: No such file or directory"),
    ],
)
def test_a_failing_hook_before_a_step_pauses(command: tuple[str, ...], why: str) -> None:
    """The step is tried again at the next look; a rollback waits for no hook."""
    scene = Scene(0.0, *("promote",) * 4, "rollback")
    hooks = CommandHooks(command, command, 0.05)
    scene.started(scene.ramp.state, hooks=hooks)
    state = scene.looks(4)
    assert scene.flags.flags.percent == 0.0
    assert state.detail.startswith("paused: the hook ")
    assert state.detail.endswith(why)
    assert scene.looks(1).phase == "rolled_back"


def test_the_state_file_is_read_by_others(tmp_path: Path) -> None:
    """Documented JSON, whole at every moment, and the same again when it is loaded."""
    scene = Scene(25.0, "hold")
    file = StateFile(tmp_path / "ramp", "chat")
    with file.only_runner():
        assert file.load() is None
        file.save(scene.looks(1))
    assert file.load() == scene.ramp.state
    read = json.loads(file.path.read_bytes())
    assert read == {
        "flow": "chat",
        "flags": {"enabled": True, "percent": 25.0},
        "since": 1_790_000_000.0,
        "phase": "running",
        "writing": None,
        "late": None,
        "held": 0.0,
        "passes": 0,
        "counted_at": 1_790_000_000.0,
        "look": {
            "at": 1_790_000_000.0,
            "verdict": "hold",
            "reasons": ["the test says hold"],
            "to": 50.0,
            "failure": "",
        },
        "detail": "paused: held 0 of 600 s, 0 of 3 passes",
    }


@pytest.mark.parametrize("content", [b"", b"{}", b'{"flow": 1}', b"\xff"])
def test_a_state_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    """It is nobody's to guess where the ramp was."""
    (tmp_path / "chat.json").write_bytes(content)
    with pytest.raises(StateUnavailable, match=r"chat\.json cannot be read"):
        StateFile(tmp_path, "chat").load()


def test_a_folder_that_is_gone_is_a_state_that_cannot_be_written(tmp_path: Path) -> None:
    """As a disk is that was unmounted."""
    state = Scene().ramp.state
    with pytest.raises(StateUnavailable, match="cannot be written: No such file"):
        StateFile(tmp_path / "gone", "chat").save(state)
    (tmp_path / "file").touch()
    with pytest.raises(StateUnavailable), StateFile(tmp_path / "file", "chat").only_runner():
        pass


def test_one_runner_a_flow(tmp_path: Path) -> None:
    """The lock ends with its process, here with its block; other flows have their own."""
    chat, session = StateFile(tmp_path, "chat"), StateFile(tmp_path, "session")
    with (
        chat.only_runner(),
        session.only_runner(),
        pytest.raises(RampRuns, match="runs already"),
        chat.only_runner(),
    ):
        pass
    with chat.only_runner():
        assert {one.name for one in tmp_path.iterdir()} == {".chat.lock", ".session.lock"}
