"""Three services written without cutover, and what each rung gives to any two of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.services.examples import DIFFS, EXAMPLES, Name, Rung, patched
from contract.records import decode_run
from contract.wire.sse import SseDecoder
from tests.support.assistants import assistants, needs_node
from tests.support.deployment import captured
from tests.support.example_processes import invoked

SERVICES: tuple[Name, ...] = ("openai_service", "langgraph_service", "node_service")
PAIRS: tuple[tuple[Name, Name], ...] = (
    ("openai_service", "langgraph_service"),
    ("langgraph_service", "openai_service"),
    ("openai_service", "node_service"),
    ("node_service", "langgraph_service"),
)
SUM = "How much is 12 * 7?"
GOODS = "500 g of flour"
ORDER = f"Please order {GOODS}"

pytestmark = pytest.mark.untraced
each_pair = pytest.mark.parametrize(("legacy", "graph"), PAIRS)


def changed(diff: str) -> list[str]:
    """Return the lines that a diff takes out or puts in."""
    lines = (line for line in diff.splitlines() if line[:3] not in {"+++", "---"})
    return [line for line in lines if line[:1] in {"+", "-"}]


@pytest.mark.parametrize("name", SERVICES)
def test_each_rung_takes_ten_changed_lines_at_most(name: Name, tmp_path: Path) -> None:
    """Of a service that knows nothing of cutover; each diff applies to what the last one made."""
    original = next((EXAMPLES / name).glob("service.*")).read_text("utf-8")
    assert "cutover" not in original
    for diff in DIFFS.values():
        assert 0 < len(changed((EXAMPLES / name / diff).read_text("utf-8"))) <= 10
    assert patched(name, tmp_path, 3, {}).read_text("utf-8") != original


@pytest.mark.slow
@pytest.mark.parametrize("rung", [1, 2, 3])
def test_the_node_service_is_typed_on_each_rung(rung: Rung, tmp_path: Path) -> None:
    """TypeScript's compiler has nothing to say of it, nor of the client."""
    needs_node("node_service")
    patched("node_service", tmp_path, rung, {})
    folder = tmp_path / "node_service"
    text = (EXAMPLES / "node_service" / "tsconfig.json").read_text("utf-8")
    (folder / "tsconfig.json").write_text(text, "utf-8")
    tsc = ["node", "node_modules/typescript/bin/tsc"]
    done = subprocess.run(tsc, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def with_node(legacy: Name, graph: Name) -> None:
    """Skip where one of them needs Node.js and it is not here."""
    needs_node(legacy)
    needs_node(graph)


async def report(folder: Path) -> Any:
    """Compare all captures; returns the report."""
    await invoked("diff", "captures", "-o", "report")
    return json.loads((folder / "report" / "report.json").read_text("utf-8"))


@pytest.mark.sockets
@pytest.mark.slow
@pytest.mark.parametrize("rung", [1, 2])
@each_pair
async def test_shadow_compares(
    legacy: Name, graph: Name, rung: Rung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first rung both ask the model; from the second on it is asked once."""
    with_node(legacy, graph)
    monkeypatch.chdir(tmp_path)
    async with assistants(tmp_path, graph, {}, legacy=legacy, rung=rung) as both:
        assert text_of(await both.ask("clean", "one", SUM))
        calls = sum(both.services.model.counts.attempts.values())
        assert calls == (2 if rung == 2 else 0)
    counts = (await report(tmp_path))["counts"]
    assert counts["by_flow"] == {"clean": 1}
    assert counts["different"] == (0 if rung == 2 else 1)


@pytest.mark.sockets
@pytest.mark.slow
@each_pair
async def test_tools_run_exactly_once(
    legacy: Name, graph: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where the order is placed and in the table; the shadow gets the same order."""
    with_node(legacy, graph)
    monkeypatch.chdir(tmp_path)
    async with assistants(tmp_path, graph, {}, legacy=legacy, rung=3) as both:
        assert f"order 1: {GOODS}" in text_of(await both.ask("clean", "one", ORDER))
        assert both.orders() == both.done() == [GOODS]
        assert sum(both.services.model.counts.attempts.values()) == 2
    found = await report(tmp_path)
    assert found["counts"]["by_flow"] == {"clean": 1}
    assert [cause["path"] for cause in found["clusters"]] == []


@pytest.mark.sockets
@pytest.mark.slow
async def test_below_the_third_rung_a_shadow_orders_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what the third rung is for: two rows of one order."""
    monkeypatch.chdir(tmp_path)
    async with assistants(tmp_path, "langgraph_service", {}, rung=2) as both:
        await both.ask("clean", "one", ORDER)
        assert both.orders() == [GOODS, GOODS]


@pytest.mark.sockets
@pytest.mark.slow
@each_pair
async def test_an_answer_that_breaks_off_behind_an_order_is_finished_without_another(
    legacy: Name, graph: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of its text, after the tool; the other one finishes it."""
    with_node(legacy, graph)
    monkeypatch.chdir(tmp_path)
    slow = "sim-chat?rate=100"
    options: dict[str, Any] = {"legacy": legacy, "rung": 3, "percent": 100, "model": slow}
    async with assistants(tmp_path, graph, {}, **options) as both:
        async with both.post("clean", "one", ORDER) as response:
            began: bytes = await response.content.readuntil(b"event: tool\n")
            began += await response.content.readuntil(b"event: token\n")
            both.graph.kill()
            broken = began + await response.read()
        await both.settled()
        assert broken.count(b": served-by legacy ") == 1
        assert both.orders() == both.done() == [GOODS]
        assert sum(both.services.model.counts.attempts.values()) == 2
    lines = captured(tmp_path, "flow=*").splitlines()
    [tape] = [run.tape for run in map(decode_run, lines) if run.tape]
    items = [item for entry in tape if entry.port == "model" for item in entry.items]
    whole = "".join(json.loads(bytes(item)).get("text", "") for item in items)
    assert text_of(broken) == whole
    assert f"order 1: {GOODS}" in whole


def text_of(body: bytes) -> str:
    """Return the text of an answer that ends as it should."""
    *events, last = SseDecoder().feed(body)
    assert last.event == "done", body.decode()
    return "".join(json.loads(event.data).get("text", "") for event in events)
