"""The gate on captures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contract.flows import SPECS
from cutover.flows import settings_at
from cutover.gate import LoadUnreadable, decide, load_checks
from loadtests.requests import FlowUnknown
from router.config.loader import parse_settings
from router.config.schema import GateSettings


def test_an_empty_folder_cannot_tell(tmp_path: Path) -> None:
    """No data is a decision, not an error."""
    decision = decide(tmp_path, settings_at(None), "chat", to=25)
    assert (decision.verdict, decision.to) == ("cannot_tell", 25)
    assert decision.reasons


def test_an_unknown_flow_is_refused(tmp_path: Path) -> None:
    """The names that are known are in the error."""
    with pytest.raises(FlowUnknown, match="'chat'"):
        decide(tmp_path, settings_at(None), "chta", to=25)


def test_load_runs_are_read_from_their_report(tmp_path: Path) -> None:
    """Of a critical measure the interval has to end within its margin; others may not be worse."""
    needs = GateSettings()

    def verdicts(*paired: tuple[str, float, float, float]) -> dict[str, str]:
        report = {
            "flow": "chat",
            "basis": "valid",
            "stacks": [
                {"stack": stack, "requests": 9, "endings": {}} for stack in ("legacy", "graph")
            ],
            "paired": [
                {"metric": metric, "pairs": 5, "ratio": ratio, "low": low, "high": high}
                for metric, ratio, low, high in paired
            ],
        }
        (tmp_path / "load.json").write_bytes(msgspec.json.encode(report))
        return {one.name: one.verdict for one in load_checks(tmp_path, "chat", needs)}

    assert verdicts(("ttft", 1.0, 0.97, 1.03), ("ttfe", 1.3, 0.9, 1.7), ("itl", 9, 9, 9)) == {
        "load_ttft_p95": "promote",
        "load_ttfe_p95": "promote",
    }
    assert verdicts(("ttle", 1.05, 0.9, 1.2)) == {"load_e2e_p95": "hold"}
    assert verdicts(("ttfe", 1.3, 1.2, 1.4)) == {"load_ttfe_p95": "hold"}


def test_a_folder_without_load_runs_is_refused(tmp_path: Path) -> None:
    """Also runs of another flow: nothing is decided by half of what was asked for."""
    with pytest.raises(LoadUnreadable, match="cannot be read"):
        decide(tmp_path, settings_at(None), "chat", to=25, load=tmp_path)
    report = {"flow": "ops", "basis": "valid", "stacks": [], "paired": []}
    (tmp_path / "load.json").write_bytes(msgspec.json.encode(report))
    with pytest.raises(LoadUnreadable, match="'ops', not 'chat'"):
        decide(tmp_path, settings_at(None), "chat", to=25, load=tmp_path)


def test_a_flow_may_have_margins_of_its_own() -> None:
    """What it leaves out is as for every flow."""
    text = "[gate]\nrequests = 50\n[gate.margins]\ncost = 0.5\n[flows.chat.gate]\npairs = 3\n"
    settings = parse_settings(f"{text}margins = {{tokens = 0.2}}\n", "here", SPECS)
    chat, ops = settings.gate_of("chat"), settings.gate_of("ops")
    assert (chat.requests, chat.pairs, chat.margins.cost, chat.margins.tokens) == (50, 3, 0.5, 0.2)
    assert (ops.requests, ops.pairs, ops.margins.cost, ops.margins.tokens) == (50, 100, 0.5, 0.1)
