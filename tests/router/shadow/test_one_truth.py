"""One truth: the ledger of a router and `cutover diff` on its captures agree on every exchange."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from compare.findings import tells_apart
from contract.flows.chat import Send
from effects.model import ScriptedModel
from router.context import LedgerLine
from router.stack import StackName
from tests.compare.pairs import findings, tallied
from tests.router.shadow.test_live import OTHERWISE, model
from tests.support.commands import run_command
from tests.support.deployment import Setup, deployed
from tests.support.faulty_stacks import after, crash, hang, mapped, short
from tests.support.router_world import House, Rules
from tests.support.scripted_service import HELLO, WHOLE, serving, streams
from tests.support.tool_replies import CASE, FLOWS

ASSIGNED: tuple[StackName, ...] = ("legacy", "graph")


def louder(event: Any) -> Any:
    """Send the same text in capitals."""
    loud = isinstance(event, Send) and event.content is not None
    return msgspec.structs.replace(event, content=event.content.upper()) if loud else event


CANDIDATES: dict[str, Any] = {
    "equal": lambda flow: flow,
    "louder": lambda flow: mapped(flow, louder),
    "crashes": lambda flow: after(flow, 4, crash),
    "hangs": lambda flow: after(flow, 4, hang),
    "short": lambda flow: short(flow, 5),
}


@pytest.mark.virtual
@pytest.mark.parametrize("mode", ["replay", "tail", "live"])
@pytest.mark.parametrize("assigned", ASSIGNED)
@pytest.mark.parametrize("candidate", CANDIDATES)
async def test_the_ledger_agrees_with_comparing_the_capture(
    candidate: str, assigned: StackName, mode: Literal["replay", "tail", "live"]
) -> None:
    """Both stacks as they are, and the shadowing one with a fault."""
    flows: dict[str, Any] = {
        name: flow if name == assigned else CANDIDATES[candidate](flow)
        for name, flow in FLOWS.items()
    }
    asks: ScriptedModel | None = model(*OTHERWISE) if mode == "live" else None
    rules = Rules(assigned=assigned, shadow=100, mode=mode, asks=asks, stand_in=False)
    async with House(CASE, rules, **flows) as made:
        served = await made.ask()
        line = made.contexts.lines[served.exchange]
        runs = tuple(made.runs)
    differs = any(map(tells_apart, findings(*runs, wire=CASE.spec)))
    tally = tallied(runs, flows={CASE.spec.name: CASE.spec})
    assert line == LedgerLine(CASE.spec.name, "compared", line.reason)
    assert (line.reason == "equal") is not differs
    assert (line.reason == "own_answers") is (differs and tally.own_answers == 1)
    if mode != "live":
        assert (tally.equal, tally.different) == (not differs, differs)


DECLARED = """
[[replace]]
pattern = "a|b"
with = "?"
flow = "chat"
"""
OTHERWISE_WRITTEN = WHOLE.replace(b'{"step":"START_REPLY"}', b'{ "step": "START_REPLY" }')


@pytest.mark.sockets
@pytest.mark.parametrize("declared", ["here", "named", "nowhere"])
async def test_the_rules_of_reports_are_in_force_in_the_ledger(
    declared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services behind a router, `diff.toml` beside it or named: one count of equal exchanges."""
    monkeypatch.chdir(tmp_path)
    named = ""
    if declared == "here":
        (tmp_path / "diff.toml").write_text(DECLARED)
    elif declared == "named":
        (tmp_path / "what-counts.toml").write_text(DECLARED)
        named = '[shadow]\nrules = "what-counts.toml"'
    async with serving(streams(WHOLE)) as control, serving(streams(WHOLE)) as candidate:
        stacks = f'[stacks]\nlegacy = "{control.url}"\n[stacks.graph]\nurl = "{candidate.url}"'
        setup = Setup(more=f"{named}\n{stacks}\nshadow_safe = true", shadow=100)
        async with deployed(tmp_path, setup) as place:
            answers = WHOLE, OTHERWISE_WRITTEN, WHOLE.replace(b'"a"', b'"b"')
            for answer in answers:
                candidate.answer = streams(answer)
                await place.ask(HELLO)
                await place.settled()
            await place.lines()
            ledger = place.books()
            ready = await place.get("/readyz")
    run_command("diff", "captures", "-o", "report", "--config", "cutover.toml")
    counts = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))["counts"]
    equal = 2 if declared == "nowhere" else 3
    assert ledger.get("compared(equal)", 0) == counts["equal"] == equal
    assert ledger.get("compared(different)", 0) == counts["different"] == 3 - equal
    lines = {line["reason"]: line["count"] for line in ready["ledger"]["lines"]}
    assert lines["equal"] == equal


@pytest.mark.sockets
async def test_what_both_break_alike_is_equal_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that the flow does not have, from both services: nothing differs, nothing passes."""
    monkeypatch.chdir(tmp_path)
    broken = streams(WHOLE.replace(b"START_REPLY", b"BEGIN_REPLY"))
    async with serving(broken) as control, serving(broken) as candidate:
        stacks = f'[stacks]\nlegacy = "{control.url}"\n[stacks.graph]\nurl = "{candidate.url}"'
        setup = Setup(more=f"{stacks}\nshadow_safe = true", shadow=100)
        async with deployed(tmp_path, setup) as place:
            await place.ask(HELLO)
            await place.lines()
            assert place.books() == {"compared(equal)": 1}
    status, _ = run_command("diff", "captures", "-o", "report")
    report = json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    assert (status, report["counts"]["equal"], report["counts"]["unsound"]) == (1, 1, 1)
    assert [cluster["kind"] for cluster in report["clusters"]] == ["grammar_broken"]
