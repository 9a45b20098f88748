"""`cutover gate`, `ramp` and `rollback`: exit statuses, the file, and traffic that was served."""

import asyncio
import json
import os
import shlex
import time
import tomllib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from compare.differences import Difference, Kind
from compare.report.document import files, make_report
from compare.rollout import Decision
from compare.rows import PairRow, State
from compare.verdict import Read
from cutover import Event, Request, Stack
from cutover.errors import Failed
from cutover.records import encode
from effects import rollout
from harness import root
from harness.cli import cli
from harness.commands import gate
from harness.config import ConfigRefused, load
from harness.live import LiveSettings, versions
from router.captures import Store
from tests.router.captures.records import line
from tests.router.test_endpoint import CHAT
from tests.support.client import Client
from tests.support.stage import staged
from tests.support.virtual_time import VirtualLoop

CAPTURES = """[captures]
url = "captures"
key = "0123456789abcdef"
"""
FILE = f"""{CAPTURES}[stores]
database = "sqlite+aiosqlite:///world.db"
[flows.session]
enable_langgraph = true # since Monday
langgraph_percent = 50.0
"""
SERVICES = f"""{CAPTURES}[stacks.legacy]
url = "http://127.0.0.1:1"
[flows.bot]
paths = ["/bot"]
"""
FLAGS = FILE + '[flags]\nprovider = "a:b"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own as the current one, with a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cutover.toml").write_text(FILE)
    return tmp_path


def run(command: str) -> Result:
    """Run a command line."""
    return CliRunner().invoke(cli, command.split())


def capture(
    count: int, hours: float = 10.0, ago: float = 0.0, share: float = 0.5, **graph: Any
) -> None:
    """Store exchanges of the last hours, each of a user of its own, graph's changed by `graph`."""
    in_force = dict(versions(load(Path("cutover.toml")), "session"))
    rng, now = np.random.default_rng(0), round((time.time() - ago * 3_600) * 1e6)
    lines = []
    for place, drawn in enumerate(rng.random(count) < share):
        stack = "graph" if drawn else "legacy"
        took = round(rng.lognormal(13, 0.2))
        fields = {"served": stack, "why": "percent"} | (graph if drawn else {})
        lines.append(
            line(
                exchange=f"{now} {place}",
                flow="session",
                path="/api/v1/chat",
                request=json.dumps({"session_id": f"s{place}", "message": "?"}),
                stack=stack,
                assigned=stack,
                at=round(now - (count - place) / count * hours * 3.6e9),
                first_text_us=took,
                ended_us=2 * took,
                versions=in_force,
                **fields,
            )
        )
    day = datetime.fromtimestamp(now / 1e6, UTC).date()
    Store("captures").add("session", day, b"\n".join(map(encode, lines)) + b"\n")


def score(scores: dict[str, Literal[-1, 0, 1]]) -> None:
    """Store feedback, by exchange."""

    async def store() -> None:
        async with root.stores(load(Path("cutover.toml"))):
            for exchange, one in scores.items():
                await rollout.put_feedback(exchange, one)

    asyncio.run(store())


@pytest.mark.parametrize(
    ("count", "graph", "command", "status", "output"),
    [
        (3_000, {}, "", 0, "PROMOTE\n  within its margin: failed: legacy 0.00%"),
        (400, {}, "", 1, " more exchanges: about "),
        (400, {"outcome": Failed("grammar")}, "", 2, "next: cutover rollback; failed: grammar ("),
        (400, {}, "--since 1m", 3, "next: see that the router captures"),
        (400, {"why": "forced"}, "", 3, "graph has none of "),
        (400, {"outcome": Failed("grammar")}, "--since 30m --share 50", 3, "too few"),
        (400, {}, "--flow chat", 64, "no flow 'chat': there are session"),
        (400, {}, "--config other.toml", 64, "other.toml: No such file"),
        (400, {}, "--since soon", 64, "is no time"),
        (400, {}, "--report none.json", 64, "none.json"),
        (400, {}, "--page no/folder.html", 64, "no/folder.html"),
        (0, {}, "", 64, "captures: there is no such folder"),
    ],
)
def test_the_exit_status_is_the_verdict(
    count: int, graph: dict[str, Any], command: str, status: int, output: str
) -> None:
    """And what is printed says why, and what to do next."""
    if count:
        capture(count, **graph)
    done = run(f"gate captures {command}")
    assert output in done.output
    assert done.exit_code == status


@pytest.mark.parametrize(
    ("graph", "lines", "cut", "status", "output"),
    [
        ({}, 1, 9, 1, "1 of 2 files and 0 lines of the captures cannot be read"),
        ({}, 31, 0, 1, "0 of 2 files and 31 lines of the captures cannot be read"),
        ({}, 30, 0, 0, "PROMOTE"),
        ({"outcome": Failed("grammar")}, 1, 9, 2, "graph fails more"),
    ],
)
def test_what_cannot_be_read_holds(
    graph: dict[str, Any], lines: int, cut: int, status: int, output: str
) -> None:
    """Up to a hundredth of the lines may be lost; what can be read rolls back all the same."""
    capture(3_000, **graph)
    name = Store("captures").add("session", datetime.now(UTC).date(), b"no record\n" * lines)
    path = Path("captures", name)
    path.write_bytes(path.read_bytes()[: -cut or None])
    done = run("gate captures")
    assert output in done.output
    assert done.exit_code == status


def test_several_flows_are_listed() -> None:
    """One of them is to be named."""
    Path("cutover.toml").write_text(FILE + "[flows.ops]\n")
    for command in ("gate captures", "ramp captures", "rollback"):
        done = run(command)
        assert (done.exit_code, "there are session, ops" in done.output) == (64, True)


def test_a_flag_providers_share_is_to_be_said() -> None:
    """With it, the configuration of the newest exchange counts."""
    capture(3_000)
    Path("cutover.toml").write_text(FLAGS)
    assert "say with --share which one" in run("gate captures").output
    assert run("gate captures --share 50").exit_code == 0


def test_json_and_a_page_say_the_same() -> None:
    """The page stands in a file; hostile text stays text."""
    capture(400, outcome=Failed("<script>alert(1)</script>"))
    done = run("gate captures --json --page gate.html")
    decision = json.loads(done.stdout)
    shown = decision["verdict"], decision["unit"], decision["loose"]
    assert shown == ("roll_back", "session_id", 0)
    page = Path("gate.html").read_text()
    assert "<h1>Roll back</h1>" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_feedback_is_read_from_the_database() -> None:
    """It holds where graph's users dislike more of what they get."""
    capture(3_000)
    rows, _ = gate.exchanges(load(Path("cutover.toml")), "captures", "session", 0)
    graph = rows["exchange"][rows["assigned"] == "graph"]
    score(dict.fromkeys(graph[:100], -1) | dict.fromkeys(graph[100:120], 1))
    done = run("gate captures")
    assert "worse: disliked: legacy 0.00%" in done.output
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("flow", "kind", "state", "reason"),
    [
        ("session", "text", "different", "cause "),
        ("chat", "text", "different", "the comparison has no pair of session"),
        ("session", "annotation", "equal", "within its margin"),
        ("session", "text", "not_compared", "the comparison is nothing: "),
    ],
)
def test_a_comparison_holds_by_its_causes(flow: str, kind: Kind, state: State, reason: str) -> None:
    """Of this flow, unless they are waived or slight; and where it has no verdict."""
    capture(3_000)
    found = (Difference(kind, "text"),) if state != "not_compared" else ()
    why = "" if found else "not_played"
    row = PairRow(exchange="1", flow=flow, at=1, state=state, differences=found, why_not=why)
    read = Read(files=1, lines=2, damage={})
    today = datetime.now(UTC).date()
    report = make_report([row], [], read, made_at=1, today=today, waivers={}, exemplars={})
    Path("report.json").write_bytes(files(report)["report.json"])
    done = run("gate captures --report .")
    assert reason in done.output
    assert done.exit_code == (0 if reason == "within its margin" else 1)


def test_rolling_back_switches_graph_off_in_the_file(folder: Path) -> None:
    """Comments stay; the share stays for later."""
    assert run("rollback").exit_code == 0
    file = (folder / "cutover.toml").read_text()
    assert file == FILE.replace("= true #", "= false #")
    (folder / "cutover.toml").write_text(FLAGS)
    done = run("rollback")
    assert (done.exit_code, "session.enable_langgraph off there" in done.output) == (64, True)
    assert not load(folder / "cutover.toml").flows["session"].enable_langgraph


FILES = {
    "services": SERVICES,
    "flags": FLAGS,
    "no captures": FILE.partition("[stores]")[2],
    "no such key": FILE + 'sticky = "nothing"\n',
    "a stack too many": FILE + '[stacks.other]\nurl = "http://127.0.0.1:1"\n',
    "no address": SERVICES + "[stacks.graph]\n",
    "": FILE,
}


@pytest.mark.parametrize(
    ("file", "command", "problem"),
    [
        (FILES[file], command, row["problem"])
        for row in tomllib.loads(Path(__file__).with_name("plans.toml").read_text("utf-8"))["plans"]
        for file in row.get("files", [""])
        for command in row.get("commands", [""])
    ],
)
def test_a_plan_is_checked_whole_before_its_first_step(
    file: str, command: str, problem: str
) -> None:
    """The file stays as it is."""
    path = Path("cutover.toml")
    path.write_text(file if file.startswith("[") else "[stores]" + file)
    before = path.read_bytes()
    for dry in ("", "--dry-run"):
        done = CliRunner().invoke(cli, shlex.split(f"ramp captures {command} {dry}"))
        assert (done.exit_code, problem in done.output.replace("\n", "")) == (64, True)
    assert path.read_bytes() == before


def test_a_plan_needs_a_folder_that_can_be_written_to(folder: Path) -> None:
    """It is tried, by a user who may not."""
    rollout, user = gate.FileRollout.of("captures", folder / "cutover.toml", None), os.geteuid()
    folder.chmod(0o555)
    for above in (folder, *folder.parents[:3]):
        above.chmod(above.stat().st_mode | 0o055)
    os.seteuid(65_534 if user == 0 else user)
    try:
        with pytest.raises(ConfigRefused, match="not written"):
            gate.carry_out("60", (0, 1), rollout, print)
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


def test_a_dry_run_says_what_each_step_needs() -> None:
    """And writes nothing."""
    assert run("ramp captures --dry-run --steps 10,50,90,100").output.splitlines() == [
        "50 %: 1078 exchanges needed, or more",
        "90 %: 5391 exchanges needed, or more",
        "100 %: no exchanges needed, or more",
        "next: the same without --dry-run",
    ]
    assert Path("cutover.toml").read_text() == FILE


def test_a_ramp_writes_shares_and_rolls_back(folder: Path) -> None:
    """What came before the share was written does not count."""
    capture(400, ago=3, outcome=Failed("grammar"))
    path, told, ahead = folder / "cutover.toml", list[str](), [0.0]
    path.write_text(f"{FILE}[console]\n")
    rollout = gate.FileRollout("captures", path, "session", clock=lambda: time.time() + ahead[0])
    traffic: dict[int, tuple[int, int, dict[str, Any]]] = {
        3: (50, 2_000, {}),
        20: (80, 400, {"outcome": Failed("grammar")}),
    }

    def wait(_: float) -> None:
        ahead[0] += 600  # a look every ten minutes
        if found := traffic.get(round(ahead[0] / 600)):
            percent, count, graph = found
            assert rollout.percent() == percent
            os.utime(path, (time.time() - 7_200,) * 2)  # the share is two hours old, and this came
            capture(count, hours=1, share=percent / 100, **graph)

    verdict = gate.carry_out("80,100", (1, 24), rollout, told.append, wait)
    assert verdict == "roll_back"
    assert "80 %: written" in told
    assert told[-1].startswith("next: cutover rollback; failed: grammar (")
    assert not load(path).flows["session"].enable_langgraph
    shown = json.loads((folder / "report/gate-session.json").read_text())
    assert (shown["decision"]["verdict"], shown["steps"]) == ("roll_back", [80.0, 100.0])


def serve(path: Path, count: int, *, crash_after: int = 0, chunk_ms: int = 0) -> None:
    """Serve chat to so many users, on the jumping clock; none of them sees a failure."""
    path.write_text(FILE.replace("flows.session", "flows.chat"))
    settings = load(path)

    async def ask_all() -> None:
        async with staged(chunk_ms=chunk_ms) as stage, root.capturing(settings) as captures:
            live = LiveSettings(settings, path)
            app = root.application(live, stage.world, captures=captures, crash_after=crash_after)
            async with app.router.lifespan_context(app):
                for place in range(count):
                    body = CHAT | dict.fromkeys(("message_id", "user_id", "chat_id"), f"{place}")
                    client = Client(app)
                    assert b"ERROR" not in await client.post("/chat/sse", body)
                    assert client.status == 200

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(ask_all())


def test_served_traffic_of_a_graph_that_crashes_is_rolled_back(folder: Path) -> None:
    """Behind its fallback and its breaker, so that no client sees a failure."""
    serve(folder / "cutover.toml", 32, crash_after=1)
    done = run("gate captures --json")
    decision = msgspec.json.decode(done.stdout, type=Decision)
    assert (done.exit_code, decision.verdict) == (2, "roll_back")
    arms = decision.arms
    assert arms["graph"].failed == arms["graph"].taken_over == arms["graph"].exchanges > 10
    assert arms["legacy"].failed == 0
    assert "crashed" in decision.next or "stack_failed (" in decision.next


def slower(stack: Stack, seconds: float) -> Stack:
    """Return a stack that waits before each event."""

    async def slow(request: Request[Any, Any]) -> AsyncIterator[Event]:
        async for event in stack(request):
            await asyncio.sleep(seconds)
            yield event

    return slow


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("count", "seconds", "verdict", "reason"),
    [(1_200, 0.0, "promote", "within its margin: end P95"), (300, 0.1, "hold", "worse: end P95")],
)
def test_served_traffic_is_promoted_unless_graph_is_slower(
    monkeypatch: pytest.MonkeyPatch, count: int, seconds: float, verdict: str, reason: str
) -> None:
    """Exchanges of both real stacks, on the jumping clock."""
    path, both = Path("cutover.toml"), root.stacks("chat")
    changed = {**both, "graph": slower(both["graph"], seconds)}
    monkeypatch.setattr(root, "stacks", lambda _: changed)
    serve(path, count, chunk_ms=20)
    decision = gate.FileRollout.of("captures", path, "chat").decide_since(0)
    assert decision.verdict == verdict, decision
    assert reason in " ".join(decision.reasons)
