"""The gate's last verdict, as the ramp's own state has it."""

from pathlib import Path

from cutover.ramp.machine import Flags, Look, RampState
from cutover.ramp.state import StateFile
from cutover.wiring.gate_verdicts import FRESH_SECONDS, gate_verdicts


def test_the_verdict_of_a_ramps_last_look_is_read_for_an_hour(tmp_path: Path) -> None:
    """A flow without a ramp, or whose state is torn, has none."""
    look = Look(at=100.0, verdict="rollback", reasons=("errors",), to=25.0)
    state = RampState(flow="chat", flags=Flags(enabled=True, percent=5.0), since=0.0, look=look)
    StateFile(tmp_path, "chat").save(state)
    (tmp_path / "ops.json").write_text("{")
    flows = ["chat", "ops", "session"]
    assert gate_verdicts(tmp_path, flows, 101.0) == {"chat": "rollback"}
    assert gate_verdicts(tmp_path, flows, 100.0 + FRESH_SECONDS) == {}
