"""`cutover load`: what it refuses, where it sends, and what its statuses say."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli import cli
from harness.commands.load import targets
from tests.support.processes import ROOT
from tests.support.processes import free_port as port
from tests.support.stamping import stamping

TESTER = """
[rollout]
qa_key = "tester"
[flows.chat]
enable_langgraph = true
[flows.ops]
"""
SERVICES = """
[stacks.legacy]
url = "http://127.0.0.1:1"
[flows.assistant]
paths = ["/chat"]
example = "POST /chat\\ncontent-type: application/json\\n\\n{}"
"""


@pytest.mark.parametrize(
    ("config", "line", "said"),
    [
        ("", "", "name a --flow: there are chat, companion, session, pipeline, ops"),
        ("", "--flow nope", "no flow 'nope': there are chat"),
        ("", "--flow chat", "set rollout.qa_key and flows.chat.enable_langgraph"),
        (TESTER, "--flow ops", "set rollout.qa_key and flows.ops.enable_langgraph"),
        (SERVICES, "", "the router lets no client ask for a stack of 'assistant'"),
        (SERVICES, "--legacy http://127.0.0.1:1", "--legacy and --graph: name both, or none"),
        (SERVICES, "--pairs 0", "--pairs"),
        (SERVICES, "--sweep 1,two", "convert string to float: 'two'"),
        (SERVICES, "--sweep 0,1", "a rate is more than 0"),
        (SERVICES, "--messages away.jsonl", "No such file"),
        ("[flows.chat]\nenable = true", "--flow chat", "no such key"),
        (TESTER, "--flow chat --out taken", "holds the rows of another test"),
    ],
)
def test_what_cannot_be_meant_ends_with_64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, line: str, said: str
) -> None:
    """Before anything is sent, with what to do."""
    monkeypatch.chdir(tmp_path)
    Path("taken/rows").mkdir(parents=True)
    Path("cutover.toml").write_text(config)
    given = ["--config", "cutover.toml"] if config else []
    done = CliRunner().invoke(cli, ["load", *given, *line.split()], env={"COLUMNS": "200"})
    assert done.exit_code == 64
    assert said in done.output


@pytest.mark.parametrize(
    ("server", "url", "at"),
    [
        ("", "", "http://127.0.0.1:8080"),
        ('host = "0.0.0.0"\nport = 9000', "", "http://127.0.0.1:9000"),
        ('host = "10.0.0.7"', "", "http://10.0.0.7:8080"),
        ("", "https://router.example", "https://router.example"),
    ],
)
def test_a_router_is_asked_for_each_stack_by_the_testers_key(
    tmp_path: Path, server: str, url: str, at: str
) -> None:
    """The key stands in a header, beside those of the command line."""
    config = tmp_path / "cutover.toml"
    config.write_text(f"[server]\n{server}\n{TESTER}")
    found = targets(config, "chat", url, ("", ""), {"authorization": "Bearer k"})
    for stack, (where, headers) in found.items():
        assert where == at
        assert headers == {
            "authorization": "Bearer k",
            "x-cutover-qa-key": "tester",
            "x-cutover-stack": stack,
        }
    assert list(found) == ["legacy", "graph"]


def test_two_addresses_are_asked_without_a_key() -> None:
    """What they get are the headers of the command line alone."""
    found = targets(None, "chat", "", ("http://a", "http://b"), {"x": "y"})
    assert found == {"legacy": ("http://a", {"x": "y"}), "graph": ("http://b", {"x": "y"})}


def loaded(folder: Path, addresses: Mapping[str, str], *options: str) -> tuple[int, str]:
    """Load two services, three pairs of five seconds; return the status and what is printed."""
    (folder / "cutover.toml").write_text(SERVICES)
    given = [part for stack, url in addresses.items() for part in (f"--{stack}", url)]
    short = ["--pairs", "3", "--seconds", "5", "--users", "20", "--pace", "0.5"]
    out = ["--config", str(folder / "cutover.toml"), "--out", str(folder / "out")]
    done = CliRunner().invoke(cli, ["load", *out, *short, *given, *options])
    return done.exit_code, done.output


@pytest.mark.nightly
@pytest.mark.sockets
@pytest.mark.parametrize(
    ("slower", "status", "verdict"), [(1.0, {0, 3}, ""), (2.0, {1}, "slower"), (None, {3}, "")]
)
def test_the_status_is_the_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slower: float | None,
    status: set[int],
    verdict: str,
) -> None:
    """Of equal services, of one that takes twice as long, and of two that are away."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    if slower is None:
        away = f"http://127.0.0.1:{port()}"
        found, said = loaded(tmp_path, {"legacy": away, "graph": away})
        assert "both stacks fail" in said
    else:
        folders = [tmp_path / name for name in ("legacy", "graph")]
        for folder in folders:
            folder.mkdir()
        with stamping(folders[0]) as (old, *_), stamping(folders[1], slower) as (new, *_):
            found, said = loaded(tmp_path, {"legacy": old, "graph": new})
    sys.stdout.write(said)
    if "late (P95)" in said:
        pytest.skip("this machine is too busy")
    assert found in status
    assert verdict in said
    report = json.loads((tmp_path / "out" / "load.json").read_bytes())
    assert report["verdict"] in said
    assert report["verdict"] in (tmp_path / "out" / "load.html").read_text()
    assert len(report["runs"]) == 6


@pytest.mark.nightly
@pytest.mark.sockets
def test_a_sweep_goes_on_up_to_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack beyond it is not loaded further; the other one goes through all rates."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with stamping(tmp_path) as (old, *_), stamping(tmp_path, 40.0) as (new, *_):
        found, said = loaded(tmp_path, {"legacy": old, "graph": new}, "--sweep", "20,8")
    if "late (P95)" in said:
        pytest.skip("this machine is too busy")
    assert found == 1, said
    runs = json.loads((tmp_path / "out" / "load.json").read_bytes())["runs"]
    made = sorted((run["stack"], run["rate"]) for run in runs)
    assert made == [("graph", 8.0), ("legacy", 8.0), ("legacy", 20.0)]
    assert "<svg" in (tmp_path / "out" / "load.html").read_text()
