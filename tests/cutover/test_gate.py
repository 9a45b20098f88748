"""The gate on captures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contract.flows import SPECS
from cutover.flows import settings_at
from cutover.gate import LoadUnreadable, decide, evaluate, load_checks
from cutover.selftest.exchanges import batch, exchange, store
from loadtests.requests import FlowUnknown
from router.config.loader import parse_settings
from router.config.schema import GateSettings
from tests.compare.noise.messages import WORDS, answer, live, places


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


OTHER_WORDS = ("sunny", "cloudy", "windy", "warm")


def live_captures(folder: Path, words: tuple[str, ...]) -> Path:
    """Store messages that legacy served, with graph shadows that asked the model themselves."""
    exchanges = []
    for number in range(70):
        (served,) = live(answer(number, 0), number, "legacy")
        (graph,) = live(answer(number, 99, words), number, "graph")
        shadow = msgspec.structs.replace(
            graph, role="shadow", assigned="legacy", served="legacy", request=None
        )
        exchanges.append((served, shadow))
    return store(folder, batch(*exchanges))


@pytest.mark.parametrize(
    ("again", "words", "verdict"),
    [(2, WORDS, "promote"), (2, OTHER_WORDS, "hold"), (0, OTHER_WORDS, "cannot_tell")],
)
def test_live_shadows_are_held_against_the_noise_of_legacy(
    tmp_path: Path, again: int, words: tuple[str, ...], verdict: str
) -> None:
    """A graph that speaks otherwise holds; without answers of legacy to compare nothing is told."""
    text = '[shadow]\nmode = "live"\nrequests_per_day = 99\n'
    settings = parse_settings(text, "here", SPECS)
    captures = live_captures(tmp_path / "live", words)
    _, legacy = places(tmp_path, 70, again=again)
    found = evaluate(str(captures), settings, "chat", to=25, noise=[str(one) for one in legacy])
    (noise,) = [one for one in found.decision.checks if one.name == "noise"]
    assert (noise.verdict, noise.n) == (verdict, 70 if again else 0)


def test_shadows_that_played_the_tape_have_no_noise(tmp_path: Path) -> None:
    """There is nothing to measure, unless answers of legacy are named."""
    captures = store(tmp_path, batch(exchange()))
    decision = decide(captures, settings_at(None), "chat", to=25)
    assert "noise" not in {one.name for one in decision.checks}


def test_a_flow_may_have_margins_of_its_own() -> None:
    """What it leaves out is as for every flow."""
    text = "[gate]\nrequests = 50\n[gate.margins]\ncost = 0.5\n[flows.chat.gate]\npairs = 3\n"
    settings = parse_settings(f"{text}margins = {{tokens = 0.2}}\n", "here", SPECS)
    chat, ops = settings.gate_of("chat"), settings.gate_of("ops")
    assert (chat.requests, chat.pairs, chat.margins.cost, chat.margins.tokens) == (50, 3, 0.5, 0.2)
    assert (ops.requests, ops.pairs, ops.margins.cost, ops.margins.tokens) == (50, 100, 0.5, 0.1)
