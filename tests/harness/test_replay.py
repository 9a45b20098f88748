"""`cutover replay`: its summary and exit status; processes that are killed; workers of Dask."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from compare.report.document import read_report
from cutover import Stack
from cutover.errors import Unusable
from cutover.records import encode
from cutover.tape import Fork
from harness import root
from harness.cli import cli
from harness.commands.gate import findings
from harness.commands.replay import ReplayJob, Summary, here, job_of, on_workers
from harness.config import CapturesTable, ModelTable, Settings, parse
from loadtests.simulator import Simulator
from router.captures import CaptureReader, Store
from tests.compare.captured import KEY, Capturing
from tests.compare.captured import captured as capture
from tests.support.stage import breaking

ROOT = Path(__file__).resolve().parents[2]
CONFIG = f"""
[captures]
url = "unused"
key = "{KEY}"
"""


async def _four(capturing: Capturing) -> None:
    """Serve exchanges that no shadow plays."""
    for _ in range(4):
        await capturing.exchange(played="")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captures of four exchanges of chat, served by legacy."""
    return asyncio.run(capture(tmp_path_factory.mktemp("served"), _four))


@pytest.fixture
def captured(served: Path, tmp_path: Path) -> Path:
    """A copy of these captures."""
    return Path(shutil.copytree(served, tmp_path / "captures"))


def job(folder: Path, out: Path | None = None) -> ReplayJob:
    """Return a job on all flows."""
    settings = Settings(captures=CapturesTable(url="unused", key=KEY))
    return job_of(str(folder), "graph", None, "1/1", settings, str(out) if out else "")


def replays(folder: Path) -> list[str]:
    """Return the exchanges of which a folder has a line of a replay, damage being none."""
    reader = CaptureReader(Store(str(folder)))
    found = [line.exchange for line in reader if line.role == "replay"]
    assert not reader.damage
    return sorted(found)


@pytest.mark.slow
def test_captures_replay_as_equal(captured: Path, tmp_path: Path) -> None:
    """Into a store of their own; again, there is nothing left to replay."""
    out = tmp_path / "out"
    summary = here(job(captured, out=out), Event())
    assert summary.counts == {"read": 4, "equal": 4}
    assert (summary.status, summary.outside, summary.dropped) == (0, {}, {})
    assert len(replays(out)) == 4
    assert replays(captured) == []
    again = here(job(captured, out=out), Event())
    assert (again.counts, again.status) == ({"read": 4, "replayed_before": 4}, 3)


@pytest.mark.slow
def test_a_changed_stack_is_different(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status says so."""
    stacks: dict[str, Stack] = dict(root.stacks("chat"))
    stacks["graph"] = breaking(2, "exception")(stacks["graph"])
    monkeypatch.setattr(root, "stacks", lambda _: stacks)
    summary = here(job(captured), Event())
    assert (summary.counts, summary.status) == ({"read": 4, "failed": 4}, 1)


@pytest.mark.slow
def test_a_fork_asks_what_is_configured_and_is_named(captured: Path, tmp_path: Path) -> None:
    """The report says that it is of a fork, and is no evidence for the gate."""
    out, report = str(tmp_path / "out"), tmp_path / "report"

    async def fork(at: int = 2, key: str = "mine") -> tuple[Summary, list[str]]:
        async with Simulator() as sim:
            models = {"*": ModelTable(base_url=sim.base_url, key=key)}
            settings = Settings(captures=CapturesTable(url="unused", key=KEY), models=models)
            given = str(captured), "graph", None, "1/1", settings, out, Fork(at, "gpt-new")
            summary = await asyncio.to_thread(here, job_of(*given), Event())
            return summary, [one.body["model"] for one in sim.requests]

    here(job(captured), Event())  # its lines are left out
    assert asyncio.run(fork(99))[0].counts == {"read": 4, "not_reached": 4}
    assert asyncio.run(fork(key="env:NO"))[0].counts == {"read": 4, "failed": 4}  # and tried again
    summary, asked = asyncio.run(fork())
    assert (summary.counts, asked) == ({"read": 4, "different": 4}, ["gpt-new"] * 4)
    assert asyncio.run(fork())[0].counts == {"read": 4, "replayed_before": 4}
    assert [line.role for line in CaptureReader(Store(out))] == ["fork"] * 4
    done = CliRunner().invoke(cli, ["diff", str(captured), out, "-o", str(report)])
    named = "graph from model call 2 on, by gpt-new"
    assert done.output.startswith("different\n  the pairs are with a fork, which served nobody: ")
    assert f"{named}\n  4 of 4 pairs compared differ" in done.output
    (cause,) = read_report(report).causes
    assert cause.title == "call changed: model.chat at model"
    assert findings(report, "chat")[0].endswith(f"a fork, which is no evidence: {named}")
    done = CliRunner().invoke(cli, ["replay", "x", "--stack", "graph", "--model", "gpt-new"])
    assert "add --live-after" in str(done.exception)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"flow": "sung"}, "no flow 'sung': there are chat"),
        ({"stack": "cobol"}, "--stack: 'cobol' is not configured: there are graph, legacy"),
        ({"part": "9/8"}, "--part: '9/8' is no part"),
        ({"fork": Fork(1)}, "--out: name a folder for the forks"),
        ({"fork": Fork(1), "out": "x/"}, "--out: name a folder for the forks"),
    ],
)
def test_an_option_that_names_nothing_is_refused(changed: dict[str, Any], sentence: str) -> None:
    """With what there is."""
    given = {"captures": "x", "stack": "graph", "flow": None, "part": "1/1", **changed}
    with pytest.raises((Unusable, typer.BadParameter), match=sentence):
        job_of(**given, settings=Settings())


def test_services_are_replayed_where_they_are_safe_to_ask() -> None:
    """The gateway is served for them alone, beside flows of the stacks in process."""
    stack = {"url": "http://bot", "shadow_safe": True}
    tables: dict[str, Any] = {
        "stacks": {"graph": stack},
        "gateway": {"port": 8091},
        "flows": {"bot": {"paths": ["/bot"], "dialect": "chat-completions"}, "chat": {}},
    }
    made = job_of("x", "graph", None, "1/1", parse(tables)).settings
    assert (set(made.flows), made.gateway is None) == ({"bot", "chat"}, False)
    made = job_of("x", "legacy", None, "1/1", parse(tables)).settings
    assert (set(made.flows), made.gateway) == ({"chat"}, None)
    stack["shadow_safe"] = False
    with pytest.raises(Unusable, match="not shadow_safe"):
        job_of("x", "graph", "bot", "1/1", parse(tables))


def test_a_replay_can_neither_buy_nor_store() -> None:
    """Keys of models, stores and their services are left out of what it opens."""
    tables = {
        "stores": {"database": "postgresql+psycopg://db/x", "redis": "redis://cache"},
        "models": {"gpt": {"key": "sk-secret", "base_url": "http://model"}},
    }
    made = job_of("x", "graph", None, "1/1", parse(tables)).settings
    assert (made.stores.database, made.stores.redis) == ("sqlite+aiosqlite://", "")
    assert "secret" not in str(made)
    made = job_of("x", "graph", None, "1/1", parse(tables), "forks", Fork(1)).settings
    assert (made.models["gpt"].key, made.stores.redis) == ("sk-secret", "")  # what a fork needs
    assert job_of("x", "graph", None, "1/1", Settings()).settings.models["*"].key == ""


@pytest.mark.parametrize(
    ("summary", "status"),
    [
        (Summary(Counter(read=2, equal=2), Counter(files=1, lines=2)), 0),
        (Summary(Counter(read=2, equal=1, different=1), Counter(files=1, lines=2)), 1),
        (Summary(Counter(read=2, equal=1, failed=1), Counter(files=1, lines=2)), 1),
        (Summary(Counter(read=1, equal=1), dropped=Counter(store_failed=1)), 2),
        (Summary(), 3),
        (Summary(Counter(read=1, damaged=1), Counter(files=1, lines=1)), 4),
        (Summary(Counter(equal=1), Counter(files=3, lines=1), Counter(torn=2)), 4),
        (Summary(Counter(equal=1), Counter(files=3, lines=1), Counter(torn=1)), 0),
        (Summary(Counter(equal=1), Counter(files=1, lines=1), Counter(foreign=2)), 4),
    ],
)
def test_the_exit_status_follows_from_the_summary(summary: Summary, status: int) -> None:
    """What is mostly unreadable is not called equal."""
    assert summary.status == status


def words(folder: Path) -> list[str]:
    """Return the command on a folder, and write its configuration."""
    config = folder.parent / "cutover.toml"
    config.write_text(CONFIG)
    return ["replay", str(folder), "--stack", "graph", "--config", str(config)]


def run(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command on a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *words(folder), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_the_command_prints_a_table_and_exits_by_it(captured: Path) -> None:
    """As a user calls it."""
    done = CliRunner().invoke(cli, [*words(captured), "--part", "1/1"])
    assert done.exit_code == 0, done.exception
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["exchanges", "read", "4"]
    assert rows[1][:3] == ["replayed", "4", "in"]
    assert rows[2:-1] == [["equal", "4"], ["different", "0"], ["failed", "0"], ["skipped", "0"]]
    assert rows[-1] == ["next:", "cutover", "diff", str(captured)]


@pytest.mark.nightly
def test_a_killed_replay_goes_on_and_repeats_nothing(captured: Path) -> None:
    """`kill -9` in the middle, `--follow`, more captures, and SIGTERM."""
    store = Store(str(captured))
    [line] = [one for one in CaptureReader(store) if one.exchange == f"{1:032x}"]
    wanted = 4 + 600

    def add(first: int, last: int) -> None:
        more = [msgspec.structs.replace(line, exchange=f"{n:032x}") for n in range(first, last)]
        store.add("chat", date(2026, 11, 28), b"".join(encode(one) + b"\n" for one in more))

    add(5, wanted // 2)
    killed = run(captured, "--follow")
    while not replays(captured):
        assert killed.poll() is None
    killed.kill()
    killed.communicate()
    done = len(replays(captured))
    again = run(captured, "--follow")
    add(wanted // 2, wanted + 1)
    while len(replays(captured)) < wanted:
        assert again.poll() is None
    again.send_signal(signal.SIGTERM)
    out, error = again.communicate(timeout=60)
    assert again.returncode == 0, error
    assert f"replayed before {done}" in " ".join(out.split())
    assert len(set(replays(captured))) == len(replays(captured)) == wanted


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")  # the package's own, on threads and sockets
def test_workers_of_dask_replay_files(captured: Path) -> None:
    """In processes of their own; what they count is added up."""
    dask = pytest.importorskip("distributed")
    store = Store(str(captured))
    lines = list(CaptureReader(store))
    for number in range(5, 41):
        more = msgspec.structs.replace(lines[0], exchange=f"{number:032x}")
        store.add("chat", date(2026, 11, 28), encode(more) + b"\n")
    with dask.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        summary = on_workers(cluster.scheduler_address, job(captured), Event())
        assert (summary.counts, summary.status) == ({"read": 40, "equal": 40}, 0)
        again = on_workers(cluster.scheduler_address, job(captured), Event())
        assert again.counts == {"read": 40, "replayed_before": 40}
    assert len(replays(captured)) == 40
