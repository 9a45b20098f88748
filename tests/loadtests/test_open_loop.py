"""The open loop: arrivals drawn with a seed, streams stamped as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.load_truth import Truth, fetch_stamps, figures, write_scripts
from contract.flows.chat import CHAT
from loadtests.arrivals import Cancellations, Constant
from loadtests.meter import ResponseReader, StreamMeter
from loadtests.open_loop import OpenLoop, OpenLoopPlan
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
    url: str, folder: Path, *scripts: str, take: Callable[[LoadRow], None], **more: Any
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
        **more,
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


async def test_a_client_leaves_as_planned(stamped: str, tmp_path: Path) -> None:
    """Its row says so; it is in no latency, and neither a failure nor given up."""
    rows: list[LoadRow] = []
    leaving = Cancellations(share=0.999_999, within=0.001)
    await drive(stamped, tmp_path, "first=3600", take=rows.append, cancellations=leaving)
    (row,) = rows
    assert (row.ending, row.measured) == ("left", False)
    assert row.leaves is not None
    assert row.ended >= row.leaves


async def test_workers_share_one_schedule(stamped: str, tmp_path: Path) -> None:
    """Each sends its part, at the moments and with the bodies that one worker would send."""
    scripts = [f"first=0 gap=0 sends={number}" for number in range(1, 6)]
    rows: list[LoadRow] = []
    for worker in range(2):
        part = drive(stamped, tmp_path, *scripts, take=rows.append, workers=2, worker=worker)
        await part
        assert len(rows) == (3, 5)[worker]
    assert sorted(row.contents for row in rows) == [1, 2, 3, 4, 5]
    assert [row.contents % 2 for row in rows] == [1, 1, 1, 0, 0]


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
