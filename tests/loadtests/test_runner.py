"""Both engines, in processes of their own, against a target that knows what it did."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import typer
from aiohttp import ClientError, ClientSession
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.load_truth import fetch_stamps, write_scripts
from cutover.cli.compare.load import TargetsUnclear, load_and_show, load_targets
from cutover.cli.compare.load import load as load_command
from loadtests.plan import Engine, LoadPlan, PlannedRun
from loadtests.processes import own_port
from loadtests.report import LoadReport
from loadtests.requests import MessageFileRefused, Target
from loadtests.rows import read_rows
from loadtests.runner import LOCUSTFILE, GeneratorFailed, LoadProgress, OwnProcesses, run_load
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

DECLARED = Path(__file__).parents[2] / "examples" / "declared_flow" / "cutover.toml"
SCRIPTS = ["first=0.02 gap=0.01 sends=6", "first=0.02 gap=0.01 sends=6 end=cut"]


@pytest.fixture(autouse=True)
def _runs_are_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    # The target has nothing to warm, and a few requests show all there is to see.
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    monkeypatch.setattr("loadtests.runner.LOCUSTFILE", Path(__file__).with_name("few_users.py"))


def plan(url: str, folder: Path, engine: Engine) -> LoadPlan:
    """One pair of short runs, half of the streams cut.

    Locust's end with their last request: how long its users take to hatch is the machine's affair.
    """
    return LoadPlan(
        targets=tuple(Target(stack=stack, url=url) for stack in ("legacy", "graph")),
        messages=write_scripts(folder / "messages.jsonl", SCRIPTS),
        users=4,
        rate=None if engine == "locust" else 40.0,
        seconds=60.0 if engine == "locust" else 1.0,
        think=0.1,
        pairs=1,
        engine=engine,
        patience=PATIENCE_S,
    )


async def test_both_stacks_are_loaded_and_reported(stamped: str, tmp_path: Path) -> None:
    """By Locust: rows, report and page are written, and how far it is is told."""
    await fetch_stamps(stamped)
    seen: list[LoadProgress] = []
    report = await run_load(plan(stamped, tmp_path, "locust"), tmp_path / "out", seen.append)
    await check_written(report, tmp_path / "out", stamped)
    assert seen[-1].share == 1.0


async def test_the_command_shows_what_it_found(stamped: str, tmp_path: Path) -> None:
    """By the open loop: the same, side by side, with failures by kind and where the files are.

    A reader of an older report meanwhile reads it to its end.
    """
    await fetch_stamps(stamped)
    console = Console(file=StringIO(), width=200)
    (tmp_path / "out").mkdir()
    before = tmp_path / "out" / "load.json"
    before.write_text("an older report")
    with before.open() as held:
        status = await load_and_show(plan(stamped, tmp_path, "open"), tmp_path / "out", console)
        assert held.read() == "an older report"
    report = msgspec.json.decode(before.read_bytes(), type=LoadReport)
    assert status == (3 if report.basis == "void" else 0)
    await check_written(report, tmp_path / "out", stamped)
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "TTFT, first words" in shown
    assert "truncated" in shown
    assert "load.html" in shown
    assert "good requests/s" in shown


async def check_written(report: LoadReport, out: Path, stamped: str) -> None:
    """Check the files: every cut stream is a failure, every other one is not."""
    rows = list(read_rows(out / "rows.jsonl"))
    stamps = await fetch_stamps(stamped)
    # Locust may kill a user between two breaths: such a request is given up, not judged.
    for row in (row for row in rows if row.ending != "cancelled"):
        cut = stamps[row.message_id].sent[-1][0] != "END"
        assert row.ending == ("truncated" if cut else "complete")
    assert {row.ending for row in rows} >= {"truncated", "complete"}
    assert {row.stack for row in rows} == {"legacy", "graph"}
    assert len({row.message_id for row in rows}) == len(rows)
    assert msgspec.json.decode((out / "load.json").read_bytes(), type=LoadReport) == report
    assert (out / "load.html").stat().st_size > 5_000


async def test_locust_runs_by_hand_with_workers(
    stamped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its web UI starts a test; once the command is interrupted, what was measured is reported."""
    monkeypatch.setattr("loadtests.runner.LOCUSTFILE", LOCUSTFILE)
    form = {"user_count": "2", "spawn_rate": "2", "host": stamped}
    enough = started = False
    with own_port() as port:
        by_hand = msgspec.structs.replace(
            plan(stamped, tmp_path, "locust"),
            targets=(Target(stack="graph", url=stamped),),
            workers=2,
            ui=port,
        )
        out = tmp_path / "out"
        running = asyncio.create_task(run_load(by_hand, out, broken_off=lambda: enough))
        async with ClientSession(f"http://127.0.0.1:{port}") as session:
            while not running.done() and not enough:
                with suppress(ClientError):
                    async with session.get("/stats/requests") as answer:
                        stats = await answer.json()
                    if stats["state"] == "ready" and not started:
                        started = True
                        await session.post("/swarm", data=form)
                    enough = stats["state"] == "running" and stats["total_rps"] > 0
                await asyncio.sleep(0.1)
        report = await running
    (graph,) = report.stacks
    assert graph.requests > 0
    assert (report.broken_off, report.workers, report.paired) == (False, 2, ())


async def test_locusts_own_table_counts_cut_streams_as_failures(
    stamped: str, tmp_path: Path
) -> None:
    """Asked to fail on failures, Locust does; a stream that was cut is one."""
    doomed = msgspec.structs.replace(
        plan(stamped, tmp_path, "locust"),
        messages=write_scripts(tmp_path / "cut.jsonl", ["first=0 gap=0 sends=4 end=cut"]),
    )
    run = PlannedRun(0, 0, "legacy", 0)
    await OwnProcesses().load(doomed, run, tmp_path / "rows")
    (account,) = (tmp_path / "rows").glob("locust-*.json")
    table = msgspec.json.decode(account.read_bytes())
    assert table["requests"] == table["failures"] > 0


async def test_a_generator_that_dies_is_reported(stamped: str, tmp_path: Path) -> None:
    """With the last lines it wrote."""
    broken = msgspec.structs.replace(plan(stamped, tmp_path, "open"), messages=tmp_path / "absent")
    with pytest.raises(GeneratorFailed, match="absent"):
        await OwnProcesses().load(broken, PlannedRun(0, 0, "legacy", 0), tmp_path / "rows")
    with pytest.raises(MessageFileRefused):
        await run_load(broken, tmp_path / "out")


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    """Exit 2 with one sentence: no targets, a bad objective, no messages, no folder to write to."""
    app = typer.Typer()
    app.command()(load_command)
    urls = ["--legacy-url", "http://127.0.0.1:1", "--graph-url", "http://127.0.0.1:2"]
    (tmp_path / "file").touch()
    for arguments, says in (
        ([], "--qa-key-env"),
        (["--url", "http://127.0.0.1:1", "--qa-key-env", "NO_KEY"], "'NO_KEY' is not set"),
        ([*urls, "--output", str(tmp_path / "file")], "file exists"),
        ([*urls, "--objective", "speed=1"], "speed=1"),
        ([*urls, "--messages", str(tmp_path / "absent.jsonl")], "absent.jsonl"),
        ([*urls, "--flow", "chess"], "no flow 'chess'"),
        ([*urls, "--flow", "support", "--config", str(DECLARED)], "--messages"),
        ([*urls, "--flow", "support", "--config", str(tmp_path / "none.toml")], "none.toml"),
    ):
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
        assert done.exit_code == 2
        assert says in done.output


def test_each_stack_must_be_asked_for() -> None:
    """Two addresses, or one with something that tells the stacks apart."""
    both = ("http://127.0.0.1:1", "http://127.0.0.1:2")
    one = "http://127.0.0.1:3"
    assert [target.url for target in load_targets("", both, ((), ()), "")] == list(both)
    assert [target.qa_key for target in load_targets(one, ("", ""), ((), ()), "k")] == ["k", "k"]
    legacy, graph = load_targets(one, ("", ""), (("a: 1",), ("a: 2",)), "")
    assert (legacy.headers, graph.headers) == ((("a", "1"),), (("a", "2"),))
    for unclear in (
        (one, ("", ""), ((), ()), ""),
        (one, ("", ""), (("a: 1",), ()), ""),
        ("", ("", ""), ((), ()), "k"),
        ("", (both[0], ""), ((), ()), ""),
    ):
        with pytest.raises(TargetsUnclear):
            load_targets(*unclear)
