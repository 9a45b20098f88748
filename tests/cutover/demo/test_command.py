"""`cutover demo` from end to end, small: it ends well and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.demo.client import BUNDLED
from loadtests.processes import ServerDidNotStart, child_environment
from loadtests.runner import run_load
from tests.support.deployment import captured


def children(parent: int | None = None) -> set[int]:
    """Return the processes a process (None: this one) has started and that have not ended."""
    return set(_children(parent or os.getpid()))


def _children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent:
            yield int(stat.parent.name)


@pytest.mark.slow
@pytest.mark.sockets
def test_the_whole_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 0, a takeover that was seen, reports that exist, and no process left."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    monkeypatch.setattr(
        "cutover.demo.story.run_load",
        lambda plan, *rest: run_load(msgspec.structs.replace(plan, pairs=1), *rest),
    )
    messages = tmp_path / "messages.jsonl"
    messages.write_bytes(b"\n".join(BUNDLED.read_bytes().split(b"\n")[:6]))
    out = tmp_path / "out"
    before = children()
    arguments = ["--messages", messages, "--out", out, "--seconds", 1, "--users", 2]
    result = CliRunner().invoke(app, ["demo", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert children() == before
    assert ": served-by legacy" in result.output
    assert "the planted crash, and nothing else" in result.output
    assert "One question, two stacks." in result.output
    assert "gone on by legacy" in result.output
    assert "Noted, you say: tonight at eight." in result.output
    assert ": 3 files are there, approved by ada, then 1 is left" in result.output
    for name in ("report/report.html", "report/report.json", "load/load.html", "cutover.toml"):
        assert (out / name).stat().st_size > 0
    lines = [msgspec.json.decode(line) for line in captured(out, "flow=*").splitlines()]
    assert {line["role"] for line in lines} == {"serving", "fallback", "shadow"}
    question, rest = (
        line for line in lines if line["flow"] == "companion" and line["role"] == "serving"
    )
    assert (question["served"], question["outcome"]) == ("graph", "paused")
    assert (rest["served"], rest["outcome"]) == ("legacy", "completed")
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.sockets
def test_a_router_that_does_not_start_leaves_no_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was started before it is ended, and the message says where to look."""

    @contextmanager
    def refusing(*command: str, log: Path, **_: str) -> Iterator[str]:
        if log.parent.is_dir():
            raise ServerDidNotStart(command, "", log)
        yield ""

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("cutover.demo.story.server_process", refusing)
    before = children()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "router.log" in result.output
    assert children() == before


@pytest.mark.parametrize("name", ["a file", ".", "folder"])
def test_what_no_demonstration_wrote_is_not_removed(tmp_path: Path, name: str) -> None:
    """A folder is emptied only where an earlier one wrote it; nothing is started."""
    (tmp_path / "folder").mkdir()
    precious = tmp_path / "a file", tmp_path / "folder" / "cutover.toml"
    for one in precious:
        one.write_text("[flows.chat]\n", "utf-8")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / name)])
    assert result.exit_code == 2
    assert "holds what no demonstration wrote: name another --out" in result.output
    assert "sending messages" not in result.output
    assert [one.read_text("utf-8") for one in precious] == ["[flows.chat]\n"] * 2


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Which, and why; no traceback."""
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "out")])
    assert result.exit_code == 2
    assert f"error: '{tmp_path}/file/out': not a directory" in result.output


@pytest.mark.slow
@pytest.mark.sockets
def test_sigterm_ends_everything_the_demonstration_started(tmp_path: Path) -> None:
    """Simulator and router go with it; the exit status says that it was told to."""
    command = [sys.executable, "-m", "cutover", "demo", "--out", str(tmp_path / "out")]
    environ = child_environment()
    environ.pop("OPENAI_API_KEY", None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as demo:
        assert demo.stdout is not None
        assert "The router is http" in demo.stdout.readline()
        started = children(demo.pid)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(20) == 128 + signal.SIGTERM
    assert len(started) == 2
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
