"""`cutover demo`: what each act prints is what the run produced, and nothing is left running."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.demo import run_demo
from harness.demo.stage import ActFailed
from harness.demo.users import TALKS
from tests.support.processes import ROOT

ENDS_WITHIN = 400.0
"""Seconds; the demo takes one minute where nothing else runs."""


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the command."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "harness", "demo", "--folder", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def left_running(folder: Path) -> list[psutil.Process]:
    """Return the processes that run in a folder."""
    return [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(folder)]


def requests(talks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many requests talks make, by flow; the last turn of flows that ask is resumed."""
    found: Counter[str] = Counter()
    for one in talks:
        asks = one["turns"][-1][0].startswith(("Please book", "Book", "delete")) or not any(
            one["turns"][0]
        )
        resumed = len(TALKS["flows"][one["flow"]].get("resume", ())) if asks else 0
        found[one["flow"]] += len(one["turns"]) + resumed
    return dict(found)


def counted(line: str) -> dict[str, int]:
    """Return the numbers in a line by the words before them."""
    return {name: int(number) for name, number in re.findall(r"([a-z]+) (\d+)", line)}


@pytest.mark.sockets
@pytest.mark.nightly
def test_each_act_shows_what_the_run_produced(tmp_path: Path) -> None:
    """Six acts, one after the other; the figures are those of the files that they leave."""
    folder = tmp_path / "demo"
    command = start(folder)
    printed, log = command.communicate(timeout=ENDS_WITHIN)
    assert command.returncode == 0, printed[-3000:] + log[-3000:]
    assert left_running(folder) == []
    before, *acts, end = re.split(r"(?m)^(?=Act \d of 6|All six acts)", printed)
    alone, mirror, compare, crash, gate, load = acts
    assert "no key is needed" in before

    assert counted(alone.splitlines()[2].partition(": ")[2]) == requests(TALKS["alone"])
    assert "deleted monday.log, tuesday.log\n" in alone

    assert counted(mirror.splitlines()[1].partition(": ")[2]) == requests(TALKS["mirrored"])
    shadows = counted(mirror.splitlines()[2].partition("them: ")[2])
    assert shadows["different"] == len(TALKS["calls"]) + len(TALKS["streams"])
    assert shadows["equal"] == sum(requests(TALKS["mirrored"]).values()) - 1 - shadows["different"]

    report = json.loads((folder / "report" / "report.json").read_bytes())
    assert report["verdict"]["label"] == "different"
    causes = {(one["flow"], one["title"]): one for one in report["causes"]}
    assert causes.keys() == {("chat", "call added: tool.calculate"), ("chat", "outcome")}
    assert all(one["id"] in compare for one in causes.values())
    read = int(re.findall(r"exchanges read +(\d+)", compare)[0])
    assert re.findall(r"(?m)^ +(replayed|equal|different|failed) +(\d+)", compare) == [
        ("replayed", str(read)),
        ("equal", str(read - shadows["different"])),
        ("different", "0"),
        ("failed", str(shadows["different"])),
    ]
    assert f"{read + sum(shadows.values())} runs of graph cost 0" in compare

    stream = crash.partition("$ cutover serve --crash 4 &\n")[2]
    first, second = stream.split(": served-by legacy ")
    assert first.count("data: ") == 4
    assert re.findall(r'"step":"(\w+)"', first + second) == [
        *("ACCEPT", "START_REPLY", "SEND", "SEND"),
        *("SEND", "SEND", "SUCCESS", "END"),
    ]
    taken = int(re.findall(r"(\d+) streams like this one", crash)[0])
    assert "all 64 are whole, graph's breaker: open" in crash
    assert "asked 128 times, 2 for each" in crash

    assert "chat at 50 %: ROLL BACK" in gate
    assert f"stack_failed ({taken})" in gate
    assert "12 more requests: all served by legacy" in gate

    measured = json.loads((folder / "load-test" / "load.json").read_bytes())
    for one in measured["stacks"]:
        values = [row["value"] for row in one["figures"] if row["quantile"] != 0.99]
        line = next(it for it in load.splitlines() if it.strip().startswith(f"{one['stack']}: "))
        assert list(map(int, re.findall(r"(\d+) ms", line))) == list(map(round, values))
    page = (folder / "load-test" / "load.html").read_text("utf-8")
    figures = measured["stacks"][-1]["figures"]  # none where the machine was too busy to measure
    assert page.count("<br>P95") == (2 if figures else 0)

    assert compare.count("\n    next: ") == 2  # replay, diff
    assert gate.count("\n    next: ") == 2  # gate, rollback
    listed = re.findall(r"(?m)^  (/\S+)", end)
    assert [Path(one).exists() for one in listed] == [True] * 4
    assert end.splitlines()[-1].startswith("next: ")


@pytest.mark.sockets
@pytest.mark.slow
async def test_an_interrupt_ends_all_that_was_started(tmp_path: Path) -> None:
    """Also while a router starts."""
    command = start(tmp_path / "demo")
    while not left_running(tmp_path / "demo"):
        assert command.poll() is None
        await asyncio.sleep(0.05)
    command.send_signal(signal.SIGINT)
    _, log = await asyncio.to_thread(command.communicate, timeout=60)
    assert (command.returncode, log) == (130, "\ncutover demo: stopped\n")
    assert left_running(tmp_path / "demo") == []


@pytest.mark.sockets
@pytest.mark.slow
def test_the_act_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit status is 1."""
    monkeypatch.setitem(TALKS, "alone", [])
    assert run_demo(tmp_path) == 1
    error = f"act 1: the approved instruction deleted no file; see {tmp_path / 'demo.log'}"
    assert capsys.readouterr().err == f"\ncutover demo: {error}\n"
    assert left_running(tmp_path) == []


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    """Whatever they are, the demo overwrites none."""
    (tmp_path / "mine").touch()
    with pytest.raises(ActFailed, match="holds files: name another --folder"):
        run_demo(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
