"""The open loop: arrivals drawn with a seed, streams stamped as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.load_truth import Truth, fetch_stamps, figures, write_scripts
from contract.flows.chat import CHAT
from loadtests.meter import ResponseReader, StreamMeter
from loadtests.open_loop import Constant, OpenLoop, OpenLoopPlan, Poisson, offsets
from loadtests.plan import LoadPlan, PlannedRun
from loadtests.requests import Target, read_messages
from loadtests.rows import Ending, LoadRow
from tests.support.clocks import let_pass
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


class Heard(ResponseReader):
    """A reader that releases `texts` with every text of any stream, once it was taken."""

    texts: ClassVar[asyncio.Semaphore]

    def __init__(self, meter: StreamMeter) -> None:
        super().__init__(meter)
        self._read = b""
        self._told = 2  # ACCEPT, START_REPLY

    def feed(self, piece: bytes, at: int) -> None:
        """Take bytes."""
        super().feed(piece, at)
        self._read += piece
        while self._told < self._read.count(b"\n\n"):
            self._told += 1
            Heard.texts.release()


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Return what is released with every text that is read."""
    monkeypatch.setattr("loadtests.open_loop.ResponseReader", Heard)
    Heard.texts = asyncio.Semaphore(0)
    return Heard.texts


def drive(
    url: str, folder: Path, *scripts: str, take: Callable[[LoadRow], None]
) -> Coroutine[None, None, None]:
    """Send each script once, all at the same moment; rows go to `take`."""
    messages = write_scripts(folder / "messages.jsonl", scripts)
    plan = OpenLoopPlan(
        flow="chat",
        run=0,
        target=Target(stack="stamped", url=url),
        messages=str(messages),
        rows=str(folder),
        arrivals=Constant(1e6),
        seconds=len(scripts) / 1e6,
        patience=PATIENCE_S,
    )
    return OpenLoop(plan, CHAT, take).drive(read_messages(CHAT, messages))


async def driven(url: str, folder: Path, *scripts: str) -> list[LoadRow]:
    """Send each script once; returns rows in the order of the scripts."""
    rows: list[LoadRow] = []
    await drive(url, folder, *scripts, take=rows.append)
    return sorted(rows, key=lambda row: row.message_id)


@pytest.mark.parametrize(
    ("script", "ending", "code"),
    [
        ("end=success", "complete", ""),
        ("end=failed", "error", "failed"),
        ("end=cut", "truncated", "closed"),
        ("end=missing", "truncated", "no_terminal"),
        ("end=malformed", "error", "malformed"),
        ("end=refuse", "refused", "locked"),
        ("this is no script", "refused", "bad_script"),
    ],
)
async def test_every_ending_is_distinguished(
    stamped: str, tmp_path: Path, script: str, ending: Ending, code: str
) -> None:
    """A stream that was cut, or said that it failed, never counts as served."""
    quick = script if "no" in script.split() else f"first=0 gap=0 sends=4 {script}"
    (row,) = await driven(stamped, tmp_path, quick)
    assert (row.ending, row.code) == (ending, code)


async def test_patience_ends_a_stream_that_stalls(
    stamped: str, tmp_path: Path, texts: asyncio.Semaphore
) -> None:
    """A timeout of the client's, with everything seen until then; the stall is counted."""
    asked = asyncio.create_task(driven(stamped, tmp_path, "first=0 gap=0 sends=4 end=stall"))
    for _ in range(2):
        await texts.acquire()
    let_pass(PATIENCE_S)
    (row,) = await asked
    assert (row.ending, row.contents) == ("timeout", 2)


async def test_no_server_is_unreachable(tmp_path: Path, unused_port: int) -> None:
    """With the network's own word."""
    (row,) = await driven(f"http://127.0.0.1:{unused_port}", tmp_path, "end=success")
    assert (row.ending, row.code) == ("unreachable", "ECONNREFUSED")


async def test_a_slow_answer_delays_no_other_request(stamped: str, tmp_path: Path) -> None:
    """The second request is sent and answered while the first still waits: that means open."""
    rows: asyncio.Queue[LoadRow] = asyncio.Queue()
    scripts = "first=3600 sends=1", "first=0 gap=0 sends=1"
    asked = asyncio.create_task(drive(stamped, tmp_path, *scripts, take=rows.put_nowait))
    assert (await rows.get()).ending == "complete"
    asked.cancel()
    await asyncio.wait({asked})
    assert (await rows.get()).ending == "cancelled"


async def test_events_are_seen_one_by_one_and_never_before_they_were_sent(
    stamped: str, tmp_path: Path
) -> None:
    """Each text is stamped on its own, and every stamp of the client's lies behind the server's."""
    (row,) = await driven(stamped, tmp_path, "first=0.02 gap=0.03 sends=4")
    stamps = (await fetch_stamps(stamped))[row.message_id]
    assert row.first_token is not None
    assert row.contents == len(stamps.texts) == 4
    first = row.sent + row.first_token
    seen = accumulate((first, *((gap + 1) * 1_000 for gap in row.gaps)))  # they are rounded down
    assert row.sent < stamps.received
    assert all(sent < at for sent, at in zip(stamps.texts, seen, strict=True))


async def test_what_is_cancelled_is_a_row_too(
    stamped: str, tmp_path: Path, texts: asyncio.Semaphore
) -> None:
    """A generator that is stopped leaves no request unaccounted for."""
    rows: list[LoadRow] = []
    silent = ["end=stall sends=2 first=0"] * 3
    asked = asyncio.create_task(drive(stamped, tmp_path, *silent, take=rows.append))
    for _ in silent:
        await texts.acquire()
    asked.cancel()
    await asyncio.wait({asked})
    assert [row.ending for row in rows] == ["cancelled"] * 3


async def test_figures_of_truth_have_the_shape_of_the_bench(stamped: str, tmp_path: Path) -> None:
    """Unit, verdict and method; cut streams taken for served are counted."""
    rows = await driven(stamped, tmp_path, *["first=0 gap=0 sends=4"] * 3, "first=0 gap=0 end=cut")
    truth = Truth("open", rows, await fetch_stamps(stamped), [])
    rows_by_name = {row.name: row for row in figures(truth)}
    assert rows_by_name["load.open.cut_taken_for_served"].value == 0
    assert all(row.unit and row.how and row.ok is not None for row in rows_by_name.values())


def test_a_plan_finds_its_targets() -> None:
    """By the stack's name; an open loop stands in for users at a fifth of a request a second."""
    target = Target(stack="graph", url="http://127.0.0.1:1")
    plan = LoadPlan(targets=(target,), messages=Path("m"), users=20)
    assert plan.target("graph") is target
    assert plan.requests_per_second == pytest.approx(4.0)
    assert PlannedRun(0, 0, "graph", 1).stack in plan.stacks


def test_constant_arrivals_are_even() -> None:
    """Ten a second, from the start."""
    assert offsets(Constant(10.0), 0.5) == pytest.approx((0.0, 0.1, 0.2, 0.3, 0.4))


def test_poisson_arrivals_are_drawn_with_a_seed() -> None:
    """The same seed gives the same trace; gaps have the mean and the spread of an exponential."""
    drawn = offsets(Poisson(50.0, seed=1), 200.0)
    gaps = np.diff(drawn)
    assert drawn == offsets(Poisson(50.0, seed=1), 200.0)
    assert drawn != offsets(Poisson(50.0, seed=2), 200.0)
    assert np.mean(gaps) == pytest.approx(0.02, rel=0.05)
    assert np.std(gaps) == pytest.approx(0.02, rel=0.05)
    assert max(drawn) < 200.0
