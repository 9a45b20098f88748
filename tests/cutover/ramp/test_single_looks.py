"""Looks of one process each, as cron makes them with `--once`: nothing but reading is done anew."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.cli.operate.ramp import RampPlace
from cutover.ramp.flags import FakeFlags
from cutover.ramp.machine import Flags, Plan, RampState, begin
from cutover.ramp.runner import Decide, Ramp
from cutover.ramp.state import StateFile
from cutover.selftest.exchanges import batch, exchange, store
from evidence.decision import Verdict
from tests.support.commands import run_command
from tests.support.drawn_captures import write_captures
from tests.support.drawn_outcomes import DrawnRollout
from tests.support.ramps import RampTime, ScriptedGate

PLAN = Plan(steps=(1.0, 25.0, 100.0), hold=240.0, passes=2, interval=60.0)
VERDICTS: tuple[Verdict, ...] = ("promote", "promote", "promote", "hold", "cannot_tell", "rollback")


@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.integers(0, 300)), max_size=30))
def test_single_looks_are_those_of_one_process(looks: list[tuple[Verdict, int]]) -> None:
    """Passes in a row, holding time, steps and ends, whatever the gate says at whatever time."""
    with TemporaryDirectory() as folder:
        whole, single = RampTime(), RampTime()
        flags, others = FakeFlags(), FakeFlags()
        state = begin("chat", flags.flags, whole.now())
        kept, file = StateFile(Path(folder), "whole"), StateFile(Path(folder), "single")
        gate, other = (ScriptedGate([one for one, _ in looks] or ["hold"]) for _ in range(2))
        running = Ramp(state, PLAN, flags, kept, gate, whole)
        file.save(state)
        for _, seconds in looks:
            whole.wait(seconds)
            single.wait(seconds)
            loaded = file.load()
            assert loaded is not None
            if loaded.ended:
                break
            Ramp(loaded, PLAN, others, file, other, single).look()
            assert running.look() == file.load()
            assert flags.flags == others.flags
        assert gate.asked == other.asked


CONFIGURATION = """
[gate]
selftest = false
[flows.chat]
enable_langgraph = true
langgraph_percent = PERCENT
shadow_percent = SHADOW
[admin]
audit_path = "FOLDER/audit.jsonl"
[stores]
history = ""
[captures]
path = "FOLDER/captures"
[ramp]
state = "FOLDER/ramp"
passes = 3
hold_seconds = 0.001
"""


def configured(folder: Path, percent: float, shadow: float) -> Path:
    """Write a configuration with a folder of its own for everything."""
    text = CONFIGURATION.replace("FOLDER", str(folder)).replace("SHADOW", str(shadow))
    path = folder / "cutover.toml"
    path.write_text(text.replace("PERCENT", str(percent)), "utf-8")
    return path


def test_the_third_command_in_a_row_makes_the_step(tmp_path: Path) -> None:
    """Each a process of its own, by the real gate; a look that fails ends the row."""
    path = configured(tmp_path, 0.0, 100.0)
    captures = store(tmp_path / "captures", batch(*(exchange(number=n) for n in range(120))))
    said = [run_command("ramp", "chat", "--config", path, "--once") for _ in range(2)]
    assert [("1 of 3 passes" in said[0][1]), ("2 of 3 passes" in said[1][1])] == [True, True]
    captures.rename(tmp_path / "away")
    status, text = run_command("ramp", "chat", "--config", path, "--once")
    assert (status, "0 of 3 passes" in text) == (1, True)
    (tmp_path / "away").rename(captures)
    for _ in range(2):
        assert "promoted" not in run_command("ramp", "chat", "--config", path, "--once")[1]
    status, text = run_command("ramp", "chat", "--config", path, "--once")
    assert (status, "promoted to 1 %" in text) == (1, True)
    assert "langgraph_percent = 1.0" in path.read_text("utf-8")


@pytest.mark.slow
def test_evidence_of_earlier_looks_counts_in_the_next_command(tmp_path: Path) -> None:
    """A third of the requests shows no fault, nor does any third alone; all of them roll back."""
    path = configured(tmp_path, 50.0, 0.0)
    thirds = DrawnRollout(requests=1_800, failing=0.02).outcomes()
    parts = [thirds[start : start + 600] for start in range(0, 1_800, 600)]
    place = RampPlace("chat", path, str(tmp_path / "captures"), None)
    writer = FakeFlags(Flags(enabled=True, percent=50.0))
    kept: Decide = place.decider(writer)
    seen = []
    for number, part in enumerate(parts):
        folder = write_captures(tmp_path / str(number), part)
        segment = tmp_path / "captures" / f"{number}.jsonl"
        segment.parent.mkdir(exist_ok=True)
        (folder / "flow=chat" / "a.jsonl").rename(segment)
        alone = RampPlace("chat", path, str(segment), None).decider(writer)
        assert alone(100.0, 0.0).verdict != "rollback"
        again, whole = place.decider(writer)(100.0, 0.0), kept(100.0, 0.0)
        assert again == whole
        seen.append(again.verdict)
    assert (seen[0] != "rollback", seen[-1]) == (True, "rollback")


def test_the_state_of_a_command_is_the_whole_state(tmp_path: Path) -> None:
    """What a look knows beyond its captures is in the file, to the last field."""
    state = RampState(
        flow="chat",
        flags=Flags(enabled=True, percent=1.0),
        since=1.0,
        writing=Flags(enabled=True, percent=5.0),
        late=Flags(enabled=True, percent=2.0),
        held=3.0,
        passes=2,
        counted_at=4.0,
    )
    file = StateFile(tmp_path, "chat")
    file.save(state)
    assert file.load() == state
    assert set(msgspec.structs.asdict(state)) == set(RampState.__struct_fields__)
