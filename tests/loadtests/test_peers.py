"""Locust's own table, as a plain `HttpUser` fills it, beside ours: against a server that stamps."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.loadtests.test_locust import ENVIRONMENT, STAMPED, locust, measured, stamped
from tests.support.stamping import stamping

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

PLAIN = """
from locust import HttpUser, constant_pacing, task

class Plain(HttpUser):
    wait_time = constant_pacing(0.5)

    @task
    def ask(self):
        self.client.post("/chat", json={})
"""
SENDING = ("-u", "20", "-r", "20", "-t", "20s")


def plain(folder: Path, url: str) -> dict[str, Any]:
    """Return the line of Locust's own table for a user as its documents begin with."""
    (folder / "plain.py").write_text(PLAIN)
    command = (sys.executable, "-m", "locust", "-f", "plain.py", "--headless", "--skip-log")
    done = subprocess.run(
        [*command, *SENDING, "--host", url, "--json-file", "plain"],
        cwd=folder,
        env=ENVIRONMENT,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1  # where a request failed
    (line,) = json.loads((folder / "plain.json").read_text())
    found: dict[str, Any] = line
    return found


@contextmanager
def standing_still(server: subprocess.Popen[str]) -> Iterator[None]:
    """Stop a server from the 12th to the 15th second of a block."""
    timers = [
        threading.Timer(seconds, server.send_signal, (number,))
        for seconds, number in ((12.0, signal.SIGSTOP), (15.0, signal.SIGCONT))
    ]
    for timer in timers:
        timer.start()
    yield
    for timer in timers:
        timer.cancel()


def test_failures_in_streams_and_a_server_that_stands_still_show_in_our_table_alone(
    tmp_path: Path,
) -> None:
    """40 requests a second are due; the server stands still for three seconds of twenty."""
    seen: dict[str, tuple[int, float]] = {}
    for name in ("cutover", "Locust"):
        (folder := tmp_path / name).mkdir()
        with stamping(folder, faults=True) as (url, server, log), standing_still(server):
            if name == "Locust":
                line = plain(folder, url)
                counts = Counter({float(ms): n for ms, n in line["response_times"].items()})
                failures, times = line["num_failures"], list(counts.elements())
            else:
                locust(folder, *STAMPED, *SENDING, "--pace", "0.5", "--host", url)
                rows, _ = measured(folder)
                failures = sum(row.ending != "complete" for row in rows)
                times = [row.ended_ms for row in rows if row.ended_ms is not None]
        ends = Counter(one["ends"] for one in stamped(log).values())
        made, p90 = ends.total() - ends["complete"], float(np.percentile(np.array(times), 90))
        sys.stdout.write(
            f"{name}: {len(times)} requests, {failures} of {made} failures, P90 {p90:.0f} ms\n"
        )
        assert made - failures <= 2 if name == "cutover" else failures < 0.9 * made
        seen[name] = len(times), p90
    assert seen["cutover"][0] > 1.1 * seen["Locust"][0]
    assert seen["cutover"][1] > 2 * seen["Locust"][1]
