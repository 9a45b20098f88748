"""The gate on captures."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.flows import SPECS
from contract.records import RunRecord
from cutover.flows import settings_at
from cutover.gate import decide, evaluate
from cutover.load_checks import FIGURES, LoadRuns, LoadUnreadable
from cutover.selftest.exchanges import Script, batch, exchange, store
from evidence.decision import Check, Decision
from loadtests.requests import FlowUnknown
from router.config.loader import parse_settings
from router.config.schema import GateSettings
from tests.compare.noise.messages import WORDS, answer, live, places


def test_an_empty_folder_cannot_tell(tmp_path: Path) -> None:
    """No data is a decision, not an error."""
    decision = decide(str(tmp_path), settings_at(None), "chat", to=25)
    assert (decision.verdict, decision.to) == ("cannot_tell", 25)
    assert decision.reasons


def test_an_unknown_flow_is_refused(tmp_path: Path) -> None:
    """The names that are known are in the error."""
    with pytest.raises(FlowUnknown, match="'chat'"):
        decide(str(tmp_path), settings_at(None), "chta", to=25)


NOW = 1_800_000_000.0
EQUAL = {"pairs": 5, "value": 1.0, "low": 0.97, "high": 1.03, "p": 0.9}


def load_report(**changed: dict[str, Any]) -> dict[str, Any]:
    """A report of five equal pairs, with some comparisons changed, by name of their check."""
    paired = [
        {
            "metric": one.metric,
            "figure": one.figure,
            **({**EQUAL, "value": 0, "low": -0.001, "high": 0.001} if not one.least else EQUAL),
            **changed.get(one.name, {}),
        }
        for one in FIGURES.values()
    ]
    stacks = [{"stack": name, "requests": 9, "code": [f"{name}-1"]} for name in ("legacy", "graph")]
    return {
        "v": 2,
        "flow": "chat",
        "basis": "valid",
        "ended": NOW - 60,
        "stacks": stacks,
        "paired": paired,
    }


def load_verdicts(folder: Path, report: dict[str, Any], now: float = NOW) -> dict[str, str]:
    """What each check says of a report, by name; those that promote are left out."""
    (folder / "load.json").write_text(json.dumps(report))
    code = {"legacy": "legacy-1", "graph": "graph-1"}
    found = LoadRuns.read(folder, "chat").checks(GateSettings(), code, now)
    return {one.name: one.verdict for one in found if one.verdict != "promote"}


def test_equal_load_runs_promote(tmp_path: Path) -> None:
    """Every percentile of four times, the failures and the goodput are compared."""
    assert load_verdicts(tmp_path, load_report()) == {}
    assert len(FIGURES) == 14


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("ttfe_p50", {"value": 1.3, "low": 1.2, "high": 1.4}),
        ("ttft_p99", {"value": 1.3, "low": 1.2, "high": 1.4}),
        ("gap_p99", {"value": 1.3, "low": 1.2, "high": 1.4}),
        ("e2e_p95", {"value": 1.3, "low": 1.2, "high": 1.4}),
        ("failures", {"value": 0.02, "low": 0.01, "high": 0.03}),
        ("goodput", {"value": 0.7, "low": 0.6, "high": 0.8}),
    ],
)
def test_a_figure_that_is_worse_under_load_holds(
    tmp_path: Path, name: str, worse: dict[str, float]
) -> None:
    """Whichever it is, where chance hardly gives it; one of fourteen at p = 0.02 is chance."""
    sure = load_report(**{name: {**worse, "p": 0.0001}})
    assert load_verdicts(tmp_path, sure) == {f"load_{name}": "hold"}
    chance = load_report(**{name: {**worse, "p": 0.02}})
    critical = name in GateSettings().critical
    assert load_verdicts(tmp_path, chance) == ({f"load_{name}": "hold"} if critical else {})


def test_a_critical_figure_has_to_be_shown_under_load(tmp_path: Path) -> None:
    """Its interval ends within the margin; better ones are no reason to hold."""
    wide = load_report(e2e_p95={"value": 1.05, "low": 0.9, "high": 1.2})
    assert load_verdicts(tmp_path, wide) == {"load_e2e_p95": "hold"}
    better = {"value": 1.4, "low": 1.3, "high": 1.5, "p": 0.0001}
    assert load_verdicts(tmp_path, load_report(goodput=better)) == {}


def other_code() -> dict[str, Any]:
    """A report of load runs on other code of graph."""
    report = load_report()
    report["stacks"][1]["code"] = ["graph-0"]
    return report


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (load_report() | {"paired": []}, "does not have one comparison of each of ttfe_p50"),
        (load_report(ttfe_p50={"low": 1.2, "high": 0.9}), "cannot be: ttfe p50"),
        (load_report(ttfe_p50={"value": 1.5}), "cannot be: ttfe p50"),
        (load_report(gap_p99={"high": math.nan}), "cannot be: icl_max p99"),
        (load_report(gap_p99={"p": math.nan}), "cannot be: icl_max p99"),
        (load_report(gap_p99={"value": -1, "low": -2}), "cannot be: icl_max p99"),
        (load_report(goodput={"low": None}), "cannot be: goodput rate"),
        (load_report(failures={"pairs": 4}), "4 pairs of load runs, 5 are due"),
        (load_report() | {"basis": "void"}, "no valid load run"),
        (load_report() | {"v": 1}, "another version of cutover"),
        (load_report() | {"ended": NOW - 8 * 86_400}, "measured 8.0 days ago, allowed: 7"),
        (load_report() | {"ended": NOW + 3_600}, "a time to come"),
        (load_report() | {"ended": math.nan}, "does not say when"),
        (other_code(), "graph had other code than it serves with now: graph-0"),
    ],
)
def test_a_load_report_that_proves_nothing_cannot_tell(
    tmp_path: Path, report: dict[str, Any], why: str
) -> None:
    """Whatever else it says, with the reason."""
    (tmp_path / "load.json").write_text(json.dumps(report))
    code = {"legacy": "legacy-1", "graph": "graph-1"}
    [check] = LoadRuns.read(tmp_path, "chat").checks(GateSettings(), code, NOW)
    assert (check.verdict, check.critical) == ("cannot_tell", True)
    assert why in check.reason


def test_the_code_in_force_is_that_which_served_last(tmp_path: Path) -> None:
    """A gate asked with load runs of the code before cannot tell."""
    runs = tuple(msgspec.structs.replace(run, code=f"{run.stack}-now") for run in exchange())
    captures = store(tmp_path / "captures", batch(runs))
    report = load_report() | {"ended": time.time()}
    for stack in report["stacks"]:
        stack["code"] = ["of-yesterday"]
    (tmp_path / "load.json").write_text(json.dumps(report))
    decision = decide(str(captures), settings_at(None), "chat", to=25, load=tmp_path)
    reasons = [one.reason for one in decision.checks if one.name == "load"]
    assert len(reasons) == 1
    assert "had other code than it serves with now: of-yesterday" in reasons[0]


def mirrored(
    number: int, script: Script | None = None, /, flow: str = "chat", **codes: str
) -> tuple[RunRecord, ...]:
    """Return an exchange that legacy served and graph mirrored, each with the code named."""
    runs = exchange(graph=script, number=number)
    return tuple(
        msgspec.structs.replace(run, flow=flow, code=codes.get(run.stack, "")) for run in runs
    )


MIRRORED = """
[gate]
selftest = false
[flows.chat]
enable_langgraph = true
shadow_percent = 100.0
"""


def mirroring(captures: Path) -> Decision:
    """Decide on the first step of a flow that only mirrors: pairs alone count."""
    return decide(str(captures), parse_settings(MIRRORED, "here", SPECS), "chat", to=1)


OTHER = Script(system="冷")
"""What graph says with a fault."""


@pytest.mark.parametrize(
    ("before", "after", "verdict", "pairs"),
    [(OTHER, None, "promote", 120), (None, OTHER, "hold", 120), (None, None, "promote", 120)],
    ids=["mended", "broken", "equal"],
)
def test_pairs_of_the_code_before_are_left_out(
    tmp_path: Path, before: Script | None, after: Script | None, verdict: str, pairs: int
) -> None:
    """Graph was deployed anew after 500 pairs: neither its fault nor its soundness then counts."""
    old = [mirrored(n, before, legacy="L", graph="G1") for n in range(500)]
    new = [mirrored(500 + n, after, legacy="L", graph="G2") for n in range(pairs)]
    decision = mirroring(store(tmp_path, batch(*old), batch(*new)))
    [findings] = [one for one in decision.checks if one.name == "findings"]
    assert (decision.verdict, findings.n) == (verdict, pairs)
    assert findings.reason.endswith("; 500 of other code are left out")


def test_too_few_pairs_of_the_new_code_cannot_tell(tmp_path: Path) -> None:
    """Also where legacy is what was deployed, and while two hosts have different code."""
    for name, runs in {
        "graph": [mirrored(n, legacy="L", graph=f"G{n > 400}") for n in range(450)],
        "legacy": [mirrored(n, legacy=f"L{n > 400}", graph="G") for n in range(450)],
        "hosts": [mirrored(n, legacy="L", graph=f"G{n % 2}") for n in range(450)],
    }.items():
        decision = mirroring(store(tmp_path / name, batch(*runs)))
        assert decision.verdict == "cannot_tell"
        assert "of other code are left out" in decision.reasons[0]


def test_pairs_of_other_flows_are_no_losses(tmp_path: Path) -> None:
    """A router that mirrors several flows has them in one place, whole or damaged."""
    chat = [mirrored(n) for n in range(120)]
    others = [mirrored(n, flow="ops") for n in range(120)]
    store(tmp_path, batch(*chat), batch(*others))
    damaged = tmp_path / "flow=ops" / "date=2026-11-20" / "segment-0.jsonl.zst"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no zstd at all")
    decision = mirroring(tmp_path)
    [losses] = [one for one in decision.checks if one.name == "losses"]
    assert (decision.verdict, losses.n, losses.value) == ("promote", 120, 0.0)


def test_a_stack_compared_with_itself_is_no_pair(tmp_path: Path) -> None:
    """Replays of legacy on its own recordings say nothing of graph."""
    runs = []
    for number in range(120):
        first, second = exchange(number=number, second="replay")
        runs.append((first, msgspec.structs.replace(second, stack="legacy")))
    decision = mirroring(store(tmp_path, batch(*runs)))
    assert decision.verdict == "cannot_tell"
    assert decision.reasons == ("0 pairs of runs were compared, 100 are due",)


def test_a_folder_without_load_runs_is_refused(tmp_path: Path) -> None:
    """Also runs of another flow: nothing is decided by half of what was asked for."""
    with pytest.raises(LoadUnreadable, match="cannot be read"):
        decide(str(tmp_path), settings_at(None), "chat", to=25, load=tmp_path)
    report = {"flow": "ops", "basis": "valid", "stacks": [], "paired": []}
    (tmp_path / "load.json").write_bytes(msgspec.json.encode(report))
    with pytest.raises(LoadUnreadable, match="'ops', not 'chat'"):
        decide(str(tmp_path), settings_at(None), "chat", to=25, load=tmp_path)


OTHER_WORDS = ("sunny", "cloudy", "windy", "warm")


def live_captures(folder: Path, words: tuple[str, ...], **codes: str) -> Path:
    """Store messages that legacy served, with graph shadows that asked the model themselves.

    `codes` are the fingerprints of both stacks' code.
    """
    exchanges = []
    for number in range(70):
        (served,) = live(answer(number, 0), number, "legacy")
        (graph,) = live(answer(number, 99, words), number, "graph")
        shadow = msgspec.structs.replace(
            graph, role="shadow", assigned="legacy", served="legacy", request=None
        )
        runs = (served, shadow)
        exchanges.append(
            tuple(msgspec.structs.replace(run, code=codes.get(run.stack, "")) for run in runs)
        )
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


LIVE = '[gate]\nselftest = false\n[shadow]\nmode = "live"\nrequests_per_day = 99\n'


def test_noise_is_measured_of_the_code_in_force(tmp_path: Path) -> None:
    """Graph spoke otherwise before it was deployed anew, and legacy answers again with its code."""
    settings = parse_settings(LIVE, "here", SPECS)
    captures = live_captures(tmp_path / "live", OTHER_WORDS, legacy="L", graph="G1")
    (served, shadow) = exchange(number=500)
    new = msgspec.structs.replace(served, code="L"), msgspec.structs.replace(shadow, code="G2")
    newest = captures / "flow=chat" / "date=2026-11-21" / "segment-1.jsonl.zst"
    _, legacy = places(tmp_path, 70)

    def noise() -> Check:
        places = [str(one) for one in legacy]
        decision = evaluate(str(captures), settings, "chat", to=25, noise=places).decision
        return next(one for one in decision.checks if one.name == "noise")

    assert (noise().verdict, noise().n) == ("hold", 70)
    newest.write_bytes(batch(new))
    assert (noise().verdict, noise().n) == ("cannot_tell", 0)
    assert noise().reason.endswith("; 70 of other code are left out")


def test_legacy_that_answers_again_with_other_code_is_no_noise(tmp_path: Path) -> None:
    """What differs then may be the code's own."""
    settings = parse_settings(LIVE, "here", SPECS)
    captures = live_captures(tmp_path / "live", WORDS, legacy="L", graph="G")
    runs = [live(answer(n, 1), n, "legacy", 1)[0] for n in range(70)]
    for code, messages in (("L", 70), ("", 70), ("L0", 0)):
        coded = [(msgspec.structs.replace(run, code=code),) for run in runs]
        again = store(tmp_path / f"again-{code}", batch(*coded))
        decision = evaluate(str(captures), settings, "chat", to=25, noise=[str(again)]).decision
        assert [one.n for one in decision.checks if one.name == "noise"] == [messages]


def test_shadows_that_played_the_tape_have_no_noise(tmp_path: Path) -> None:
    """There is nothing to measure, unless answers of legacy are named."""
    captures = store(tmp_path, batch(exchange()))
    decision = decide(str(captures), settings_at(None), "chat", to=25)
    assert "noise" not in {one.name for one in decision.checks}


def test_a_flow_may_have_margins_of_its_own() -> None:
    """What it leaves out is as for every flow."""
    text = "[gate]\nrequests = 50\n[gate.margins]\ncost = 0.5\n[flows.chat.gate]\npairs = 3\n"
    settings = parse_settings(f"{text}margins = {{tokens = 0.2}}\n", "here", SPECS)
    chat, ops = settings.gate_of("chat"), settings.gate_of("ops")
    assert (chat.requests, chat.pairs, chat.margins.cost, chat.margins.tokens) == (50, 3, 0.5, 0.2)
    assert (ops.requests, ops.pairs, ops.margins.cost, ops.margins.tokens) == (50, 100, 0.5, 0.1)
