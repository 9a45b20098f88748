"""Captured exchanges, replayed on services that have changed: the tape answers all they call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.services.examples import KEY
from tests.support.assistants import Name, assistants, needs_node, restarted
from tests.support.example_processes import invoked

ASKED = [
    ("sums", "How much is 12 * 7?"),
    ("orders", "Please order 500 g of flour"),
    ("texts", "How do I keep basil fresh?"),
    ("texts", "And parsley?"),
    ("texts", "Thank you. And how many lb are 5 kg?"),
]
"""Five requests in three conversations, with tools, an order and turns that have a history."""
PROMPT = ("at most five", "at most three")
PYTHON, NODE = (":.2f} {to_unit}", ":.1f} {to_unit}"), ("toFixed(2)", "toFixed(1)")
RESULT = {"langgraph_service": PYTHON, "node_service": NODE, "openai_service": PYTHON}
CALL = "model.stream@gateway[].messages[]"

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]


async def replay(config: Path, out: str, *more: str) -> tuple[int, str, Any]:
    """Replay all captures on graph; returns exit status, what was printed, and the report."""
    words = ("replay", "captures", "--stack", "graph", "--config", str(config), "-o", out, *more)
    done = await invoked(*words)
    return done.exit_code, " ".join(done.output.split()), reported(out)


def reported(out: str) -> Any:
    """Return the report of a replay; None where nothing was compared."""
    report = Path(out, "report", "report.json")
    return json.loads(report.read_text("utf-8")) if report.exists() else None


@pytest.mark.parametrize("graph", ["langgraph_service", "node_service", "openai_service"])
async def test_changed_code_is_replayed_without_a_model_or_a_tool(
    graph: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code: equal; another word, another result of a tool: that, and nothing else."""
    needs_node(graph)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    legacy: Name = "langgraph_service" if graph == "openai_service" else "openai_service"
    options: dict[str, Any] = {"legacy": legacy, "rung": 3, "history": "own"}
    async with assistants(tmp_path, graph, {}, **options) as both:
        for conversation, message in ASKED:
            await both.ask("clean", conversation, message)
        calls, orders = dict(both.services.model.counts.attempts), both.done()
        async with restarted(both, tmp_path, graph, rung=3) as config:
            status, said, report = await replay(config, "same")
            assert (status, report["counts"]["pairs"]) == (0, len(ASKED)), said
            assert report["clusters"] == []
        async with restarted(both, tmp_path, graph, rung=3, change=PROMPT) as config:
            status, said, report = await replay(config, "changed")
            assert (status, report["counts"]["different"]) == (1, len(ASKED)), said
            assert [cause["path"] for cause in report["clusters"]] == [f"{CALL}.system"]
        async with restarted(both, tmp_path, graph, rung=3, change=RESULT[graph]) as config:
            status, said, report = await replay(config, "function")
            assert (status, report["counts"]["different"]) == (1, 1), said
            assert [cause["path"] for cause in report["clusters"]] == [f"{CALL}.tool"]
        assert both.services.model.counts.attempts == calls
        assert both.done() == both.orders() == orders == ["500 g of flour"]


async def test_services_that_call_their_model_themselves_have_nothing_to_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason names the way up; nothing is sent. One that runs elsewhere is not found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_KEY", KEY)
    async with assistants(tmp_path, "langgraph_service", {}, rung=1) as both:
        await both.ask("clean", *ASKED[0])
        async with restarted(both, tmp_path, "langgraph_service", rung=2) as config:
            status, said, report = await replay(config, "none")
            assert (status, report) == (3, None)
            assert "skipped: no call of it is on the tape: the services call their model" in said
        status, said, _ = await replay(config, "away")
        assert (status, "start the service with the code to be replayed" in said) == (2, True)
