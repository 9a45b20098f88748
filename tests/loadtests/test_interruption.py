"""A load that is broken off keeps what it has seen, says that it is not all, and ends the rest."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.load_truth import Stamps, fetch_stamps, write_scripts
from loadtests.plan import Engine, LoadPlan
from loadtests.processes import child_environment, module_command
from loadtests.report import BROKEN_OFF, LoadReport
from loadtests.requests import Target
from loadtests.rows import read_rows
from loadtests.runner import LoadProgress, NothingMeasured, run_load
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

QUICK = "first=0.01 gap=0.01 sends=2"
SILENT = "first=0.01 gap=0.01 sends=2 end=stall"
ENOUGH = 24


@pytest.fixture(autouse=True)
def _warming_up_is_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    # However slow the machine is, a generator comes to write its last rows.
    monkeypatch.setattr("loadtests.runner.ENDS_WITHIN", PATIENCE_S)


def plan(url: str, folder: Path, engine: Engine, scripts: list[str]) -> LoadPlan:
    """Runs that are interrupted before their end."""
    return LoadPlan(
        targets=tuple(Target(stack=stack, url=url) for stack in ("legacy", "graph")),
        messages=write_scripts(folder / "messages.jsonl", scripts),
        users=6,
        rate=20.0 if engine == "open" else None,
        seconds=600.0,
        think=0.1,
        pairs=1,
        engine=engine,
        patience=600.0,
    )


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again."""
    async with asyncio.timeout(PATIENCE_S):
        while not await found():  # noqa: ASYNC110 - what is looked at is another process
            await asyncio.sleep(0.02)


def ended(stamps: dict[str, Stamps]) -> int:
    """Count the streams that were sent to their end."""
    return sum(one.sent[-1][0] == "END" for one in stamps.values() if one.sent)


@pytest.mark.parametrize("engine", ["locust", "open"])
async def test_what_was_seen_is_written(stamped: str, tmp_path: Path, engine: Engine) -> None:
    """Streams under way are given up, not waited for; their run is void, and the report says so."""
    await fetch_stamps(stamped)
    begun, enough = asyncio.Event(), asyncio.Event()

    def watch(_: LoadProgress) -> None:
        begun.set()

    async def breaks_off() -> None:
        await begun.wait()
        await fetch_stamps(stamped)  # of warming up
        seen: dict[str, Stamps] = {}

        async def answered() -> bool:
            seen.update(await fetch_stamps(stamped))
            return ended(seen) >= 2

        await until(answered)
        enough.set()

    asked = plan(stamped, tmp_path, engine, [QUICK, SILENT])
    report, _ = await asyncio.gather(
        run_load(asked, tmp_path / "out", watch, enough.is_set), breaks_off()
    )
    rows = list(read_rows(tmp_path / "out" / "rows.jsonl"))
    assert {row.ending for row in rows} == {"complete", "cancelled"}
    assert report.broken_off
    assert (len(report.runs), report.planned, report.basis) == (1, 2, "void")
    assert BROKEN_OFF in report.runs[0].void
    written = (tmp_path / "out" / "load.json").read_bytes()
    assert msgspec.json.decode(written, type=LoadReport) == report
    page = (tmp_path / "out" / "load.html").read_text("utf-8")
    assert "Broken off: 0 of 2 runs are whole." in page


async def test_a_load_broken_off_at_once_writes_nothing(stamped: str, tmp_path: Path) -> None:
    """And an older report stays what it was."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "load.json").write_text("an older report")
    asked = plan(stamped, tmp_path, "open", [QUICK])
    with pytest.raises(NothingMeasured):
        await run_load(asked, tmp_path / "out", broken_off=lambda: True)
    assert [one.read_text() for one in (tmp_path / "out").iterdir()] == ["an older report"]


@pytest.fixture
def _no_signal_is_ignored() -> Iterator[None]:
    """Start commands as a terminal does: what a shell runs in the background ignores ^C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_no_signal_is_ignored")
@pytest.mark.parametrize(
    ("engine", "number", "status"),
    [("locust", signal.SIGINT, 130), ("open", signal.SIGTERM, 143)],
)
async def test_a_signal_breaks_the_command_off(
    stamped: str, tmp_path: Path, engine: str, number: signal.Signals, status: int
) -> None:
    """It shows what there is, its exit status is the signal's, and no request follows."""
    await fetch_stamps(stamped)
    scripts = [QUICK] * 8 + [SILENT] * 2  # warming up never comes to the silent
    messages = write_scripts(tmp_path / "messages.jsonl", scripts)
    urls = [f"--{stack}-url={stamped}" for stack in ("legacy", "graph")]
    options = [
        f"--engine={engine}",
        "--seconds=600",
        "--rate=40" if engine == "open" else "--users=30",
        f"--messages={messages}",
    ]
    process = await asyncio.create_subprocess_exec(
        *module_command("cutover", "load", *urls, *options, f"--output={tmp_path / 'out'}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=sys.stderr,
        env=child_environment(COLUMNS="200"),
    )
    seen: dict[str, Stamps] = {}

    async def answered() -> bool:
        seen.update(await fetch_stamps(stamped))
        return ended(seen) >= ENOUGH

    async def left() -> bool:
        seen.update(await fetch_stamps(stamped))
        return ended(seen) < len(seen)

    try:
        await until(answered)
        process.send_signal(number)
        shown, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == status
    assert b"Broken off: 0 of 4 runs are whole." in shown
    assert b"rows.jsonl, load.json and load.html are in" in shown
    assert list(read_rows(tmp_path / "out" / "rows.jsonl"))
    await until(left)  # a silent stream ends for the target when its reader goes
