"""Locust against servers that stamp what they send, one that stands still, and the five flows."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtests.rows import Generator, Row, read_rows
from tests.support.processes import ROOT, RouterProcess
from tests.support.stamping import stamping

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
CONFIG = """
[flows.stamped]
paths = ["/chat"]
example = "POST /chat\\ncontent-type: application/json\\n\\n{}"
"""


def locust(folder: Path, *options: str) -> tuple[int, str]:
    """Run `locust -f loadtests/locustfile.py --headless`; return its status and what it said."""
    (folder / "cutover.toml").write_text(CONFIG)
    command = (sys.executable, "-m", "locust", "-f", ROOT / "loadtests/locustfile.py", "--headless")
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout


def measured(folder: Path) -> tuple[list[Row], list[Generator]]:
    """Return the rows of requests, and those of generators."""
    rows = read_rows(folder / "rows")
    return (
        [one for one in rows if isinstance(one, Row)],
        [one for one in rows if isinstance(one, Generator)],
    )


def stamped(log: Path) -> dict[str, Mapping[str, Any]]:
    """Return what a server logged, by the ids that it answered with."""
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    return {one["id"]: one for one in lines}


STAMPED = ("--cutover-config", "cutover.toml", "--rows", "rows")


ATTEMPTS = 3
"""Other processes of a machine only ever add to what is measured."""
TOO_LATE_MS = 10.0


@pytest.mark.parametrize("workers", [0, 2])
def test_figures_are_those_of_the_server(tmp_path: Path, workers: int) -> None:
    """P50, P95, P99 within 2 ms or 1 %; each ending counted; by two workers, too."""
    late = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with stamping(folder, faults=True) as (url, _, log):
            sending = ("-u", "20", "-r", "20", "-t", "20s", "--pace", "0.5", "--host", url)
            shared = ("--processes", str(workers)) if workers else ()
            status, said = locust(folder, *STAMPED, *sending, *shared)
        rows, generators = measured(folder)
        stamps = stamped(log)
        assert status == 1, said  # what Locust ends with where a request failed
        assert len(generators) == max(workers, 1)
        assert len(rows) >= 700
        ends = Counter(one["ends"] for one in stamps.values())
        assert Counter(row.ending for row in rows) == ends
        assert all(row.exchange in stamps for row in rows if row.ending != "refused")
        if off_by(rows, stamps) <= 1.0:
            return
        late.append(float(np.percentile(np.array([row.sent_ms for row in rows]), 99)))
    if min(late) > TOO_LATE_MS:
        pytest.skip(f"this machine is too busy: requests went out {min(late):.0f} ms late (P99)")
    pytest.fail("the figures are not the server's")


def off_by(rows: list[Row], stamps: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the worst error of a percentile, in units of 2 ms or 1 %, whichever is more."""
    whole = [row for row in rows if row.ending == "complete"]
    worst = 0.0
    for metric, stamp in (("ttft_ms", "first"), ("ended_ms", "ended")):
        own = [getattr(row, metric) - row.sent_ms for row in whole]
        theirs = [stamps[row.exchange][stamp] - stamps[row.exchange]["read"] for row in whole]
        for quantile in (50, 95, 99):
            found = float(np.percentile(np.array(own), quantile))
            known = 1000 * float(np.percentile(np.array(theirs), quantile))
            sys.stdout.write(f"{metric} P{quantile}: {found:.1f}, served {known:.1f} ms\n")
            worst = max(worst, abs(found - known) / max(2.0, known / 100))
    return worst


def test_a_server_that_stands_still_shows_in_every_request_that_was_due(tmp_path: Path) -> None:
    """Stopped for a second, it delays each of them by what was left of that second."""
    with stamping(tmp_path) as (url, server, log):
        for seconds, number in ((6.0, signal.SIGSTOP), (7.0, signal.SIGCONT)):
            threading.Timer(seconds, server.send_signal, (number,)).start()
        sending = ("-u", "20", "-r", "20", "-t", "10s", "--pace", "0.5", "--host", url)
        locust(tmp_path, *STAMPED, *sending)
    rows, _ = measured(tmp_path)
    stamps = stamped(log)
    known = [row for row in rows if row.exchange]
    # What the server read first it had next to no delay to read: this is where its clock is.
    offset = min(stamps[row.exchange]["read"] - row.due - row.sent_ms / 1000 for row in known)
    reads = sorted(one["read"] - offset for one in stamps.values())
    stood, went = max(pairwise(reads), key=lambda pair: pair[1] - pair[0])
    assert went - stood > 0.9
    due = [row for row in rows if stood < row.due < went]
    sys.stdout.write(f"due while it stood still: {len(due)} in {went - stood:.2f} s\n")
    assert len(due) >= 0.9 * 40 * (went - stood)
    for row in due:
        assert (row.ended_ms or 0) >= 1000 * (went - row.due) - 2, row


@pytest.mark.parametrize("workers", [0, 2])
def test_a_turn_is_due_behind_the_answer_before_it(tmp_path: Path, workers: int) -> None:
    """How long that takes delays no other conversation."""
    (tmp_path / "talks.jsonl").write_text('[{"in":"{id}"},{"in":"{id}","n":2},{"in":"{id}","n":3}]')
    talks = ("--messages", "talks.jsonl", "--think", "0.5", "-u", "4", "-r", "4", "-t", "12s")
    with stamping(tmp_path, slower=3.0) as (url, *_):
        shared = ("--processes", str(workers)) if workers else ()
        status, said = locust(tmp_path, *STAMPED, *talks, "--pace", "1", "--host", url, *shared)
    assert status == 0, said
    rows, _ = measured(tmp_path)
    sent = {(row.conversation, row.turn): row for row in rows}
    assert Counter(turn for _, turn in sent)[1] >= 30  # though an answer takes more than the pace
    assert Counter(turn for _, turn in sent)[3] >= 10
    for (conversation, turn), row in sent.items():
        before = sent[conversation, max(turn - 1, 1)]
        assert turn == 1 or row.due > before.due + (before.ended_ms or 0) / 1000 - 0.001


@pytest.mark.parametrize("think", ["0", "0.5"])
async def test_the_plain_command_line_loads_the_five_flows(tmp_path: Path, think: str) -> None:
    """`-u 5 -r 5 -t 10s`: one user a flow, and no request fails; in conversations, too."""
    (tmp_path / "run").mkdir()
    router = RouterProcess(tmp_path, {}, arguments=("--simulate",))
    async with router:
        sending = ("-u", "5", "-r", "5", "-t", "10s", "--host", router.url, "--rows", "rows")
        talks = ("--think", think)
        status, said = await asyncio.to_thread(locust, tmp_path / "run", *sending, *talks)
    assert status == 0, said
    rows, _ = measured(tmp_path / "run")
    assert {row.ending for row in rows} == {"complete"}
    assert len({row.flow for row in rows if row.turn > 1 or think == "0"}) == 5
    assert "chat: " in said


def test_a_flow_that_is_not_there_ends_with_64(tmp_path: Path) -> None:
    """And with the names of those that are."""
    status, said = locust(tmp_path, "-u", "1", "-t", "1s", "--flow", "nope")
    assert status == 64
    assert "there are chat, companion, session, pipeline, ops" in said
