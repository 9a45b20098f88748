"""What `cutover doctor` sees in the newest captures: calls that bypass the tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.records import EntryRecord, PlayRecord, RunRecord, encode_run
from cutover.cli import app
from cutover.ladder import NEWEST, calls_seen, newest_exchanges
from tests.support.records import a_run, an_entry, raw

TWO_SERVICES = """
[captures]
path = "{folder}/captures"
[stacks.legacy]
url = "http://127.0.0.1:1/"
[stacks.graph]
url = "http://127.0.0.1:1/"
shadow_safe = true
{gateway}
[flows.chat]
enable_langgraph = true
shadow_percent = 100
"""


def model_call(seq: int, tool: str = "", reply_to: str = "") -> EntryRecord:
    """Return a call through the gateway: its answer requests a tool, its messages bring a reply."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "order tea"}]
    if reply_to:
        messages.append({"role": "tool", "tool_call_id": reply_to, "content": "done"})
    asked = [{"index": 0, "id": f"call-{seq}", "name": tool}] if tool else []
    return an_entry(
        raw({"text": "", "tool_calls": asked}),
        seq=seq,
        port="model",
        op="stream",
        site="gateway",
        args=raw({"model_id": "m", "messages": messages}),
    )


def played(entry: EntryRecord) -> PlayRecord:
    """Return a call of a run that an entry of the tape answered."""
    return PlayRecord(port=entry.port, op=entry.op, site=entry.site, how="exact", entry=entry.seq)


def an_order(exchange: str, *, taped: bool) -> RunRecord:
    """Return a served run whose model requested `insert_order`, which was run."""
    entries = [model_call(0, "insert_order"), model_call(1, reply_to="call-0")]
    if taped:
        entries.append(
            an_entry(seq=2, port="external", op="run", site="orders.insert", args=raw({}))
        )
    return a_run(
        exchange,
        flow="chat",
        stack="legacy",
        tape=tuple(entries),
        plays=tuple(map(played, entries)),
    )


def test_tools_whose_calls_are_on_no_tape_are_named() -> None:
    """The model requested them, the next call brought their results; no effect is on the tape."""
    seen = calls_seen([(an_order("a", taped=False),), (an_order("b", taped=True),)])["legacy"]
    assert (seen.runs, seen.modelless, seen.requested, seen.taped) == (2, 0, 2, 1)
    assert seen.bypassing == {"insert_order": 1}


def test_runs_without_calls_of_the_model_are_counted() -> None:
    """Of served runs and of shadows, each by its stack; unfinished ones and replays are not."""
    shadow = a_run("a", stack="graph", role="shadow")
    failed = a_run("b", stack="legacy", outcome="failed")
    replay = a_run("c", stack="graph", role="replay")
    seen = calls_seen([(an_order("a", taped=True), shadow), (failed,), (replay,)])
    assert (seen["legacy"].runs, seen["legacy"].modelless) == (1, 0)
    assert (seen["graph"].runs, seen["graph"].modelless) == (1, 1)


def test_the_newest_exchanges_are_looked_at(tmp_path: Path) -> None:
    """Over several segments, and those of other flows left out."""
    write(tmp_path, "chat", 1, [an_order(f"old-{n}", taped=True) for n in range(NEWEST)])
    write(tmp_path, "chat", 2, [an_order(f"new-{n}", taped=True) for n in range(NEWEST - 1)])
    write(tmp_path, "ops", 3, [an_order("other", taped=True)])
    found = [runs[0].exchange for runs in newest_exchanges(str(tmp_path), "chat")]
    assert found == [f"old-{NEWEST - 1}", *(f"new-{n}" for n in range(NEWEST - 1))]


@pytest.mark.parametrize(
    ("gateway", "lift"),
    [
        ("", "[gateway] effects = true, and @effect at these tools"),
        (
            '[gateway]\nenabled = true\nkey_env = "K"\neffects = true',
            "one rung up: @effect at these",
        ),
    ],
)
def test_doctor_names_the_line_that_lifts_a_stack_one_rung(
    tmp_path: Path, gateway: str, lift: str
) -> None:
    """For tools that bypass the tape, and for a stack whose model is not called through it."""
    shadow = a_run("a", flow="chat", stack="graph", role="shadow")
    write(tmp_path / "captures", "chat", 1, [an_order("a", taped=False), shadow])
    config = tmp_path / "cutover.toml"
    config.write_text(TWO_SERVICES.format(folder=tmp_path, gateway=gateway), "utf-8")
    printed = CliRunner().invoke(
        app, ["doctor", "--config", str(config)], env={"COLUMNS": "300", "K": "k" * 32}
    )
    lines = printed.output
    assert "legacy   calls of the model are on the tape in 1 of 1 runs" in lines
    assert "of 1 tool calls 0 are on the tape; beside it: insert_order, which" in lines
    assert lift in lines
    assert "graph    calls of the model are on the tape in 0 of 1 runs" in lines
    assert "base_url of its OpenAI client at the router" in lines


@pytest.mark.parametrize("called", [True, False])
def test_doctor_asks_for_no_address_that_both_services_call(tmp_path: Path, called: bool) -> None:
    """Their captures show that their models are called through the gateway."""
    order = an_order("a", taped=True)
    shadow = a_run(
        "a", flow="chat", stack="graph", role="shadow", plays=order.plays if called else ()
    )
    write(tmp_path / "captures", "chat", 1, [order, shadow])
    config = tmp_path / "cutover.toml"
    text = TWO_SERVICES.format(folder=tmp_path, gateway="[gateway]\nenabled = true")
    config.write_text(text.replace(':1/"', ':1/"\nflows = ["chat"]'), "utf-8")
    printed = CliRunner().invoke(app, ["doctor", "--config", str(config)], env={"COLUMNS": "300"})
    assert "what each step gives" in printed.output
    assert ("base_url of their OpenAI clients" in printed.output) is not called


def write(folder: Path, flow: str, number: int, runs: list[RunRecord]) -> None:
    """Write runs as a segment of a flow."""
    day = folder / f"flow={flow}" / "date=2026-11-25"
    day.mkdir(parents=True, exist_ok=True)
    (day / f"{number}.jsonl").write_bytes(b"".join(map(encode_run, runs)))
