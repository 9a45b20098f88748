"""The supervisor and its workers, as real processes on one address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cutover.server.sockets import PortTaken, listen, shared_listeners
from cutover.server.workers import STABLE_SECONDS, deaths_in_a_row, restart_pause
from loadtests.processes import child_environment
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "worker_program.py"
ENOUGH = 64
"""Connections after which each of two workers has had one, but for one time in 2^63."""


@dataclass(slots=True)
class Supervised:
    """A supervisor in a process of its own, and what it has said."""

    process: subprocess.Popen[str]
    port: int
    logged: list[str] = field(default_factory=list)

    def ask(self) -> int:
        """Connect and be told the process that answers."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as connection:
            return int(connection.recv(64))

    def pids(self, enough: int = ENOUGH) -> set[int]:
        """Ask until every worker has answered."""
        return {self.ask() for _ in range(enough)}

    def announced(self) -> None:
        """Wait until all workers stand."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"all {self.port}\n"

    def log(self, words: str) -> None:
        """Wait until a line with these words is logged."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.logged.append(line)
            if words in line:
                return
        pytest.fail(f"{words!r} was not logged: {self.logged}")

    def ended(self) -> int:
        """Wait for its end; returns the status."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def supervised(folder: Path, kind: str = "serve") -> Iterator[Supervised]:
    """Start a supervisor; whatever happens, nothing of it stays."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(PYTHONPATH=str(Path(__file__).parents[3])),
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield Supervised(process, int(process.stdout.readline()))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def refused(port: int) -> bool:
    """Whether no server listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_all_workers_are_asked_and_stop_with_status_0(tmp_path: Path) -> None:
    """Connections are spread; SIGTERM to the supervisor ends everybody and frees the port."""
    with supervised(tmp_path) as it:
        it.announced()
        workers = it.pids()
        assert len(workers) == 2
        it.process.send_signal(signal.SIGTERM)
        assert it.ended() == 0
        assert all(gone(pid) for pid in workers)
        assert refused(it.port)


def test_a_worker_that_is_killed_is_started_again_and_nobody_is_refused(tmp_path: Path) -> None:
    """Who connects to its place meanwhile waits for the next one."""
    with supervised(tmp_path) as it:
        it.announced()
        before = it.pids()
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        after = it.pids()
        assert len(after - before) == 1
        assert killed not in after
        it.log(f"({killed}) was ended by SIGKILL")
        it.process.send_signal(signal.SIGINT)
        assert it.ended() == 0


def test_a_worker_that_never_starts_ends_everything_with_its_status(tmp_path: Path) -> None:
    """What keeps the first from starting keeps all: nothing is announced, none is restarted."""
    with supervised(tmp_path, "refuse") as it:
        assert it.ended() == 2
        assert it.process.stdout is not None
        assert it.process.stdout.read() == ""


def test_a_worker_that_dies_again_and_again_gives_its_place_to_the_others(tmp_path: Path) -> None:
    """It is tried less and less often, and no connection waits for it."""
    with supervised(tmp_path, "one") as it:
        it.log("worker 2 is restarted in 0.5 s")
        assert len(it.pids(16)) == 1
        it.log("worker 2 is restarted in 1 s")
        it.process.send_signal(signal.SIGTERM)
        assert it.ended() == 0
    assert any("ended with status 2" in line for line in it.logged)


def test_a_worker_that_does_not_stop_is_killed_and_the_status_says_so(tmp_path: Path) -> None:
    """The supervisor does not wait for ever."""
    with supervised(tmp_path, "deaf") as it:
        it.announced()
        workers = it.pids()
        it.process.send_signal(signal.SIGTERM)
        assert it.ended() == 1
        assert all(gone(pid) for pid in workers)
        it.log("worker 1 did not stop within 0.5 s: killed")


def test_workers_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """Their line is closed, so they stop as if they had been asked to."""
    with supervised(tmp_path) as it:
        it.announced()
        it.process.kill()
        # Its output ends when the last process that holds it has ended.
        assert it.process.stdout is not None
        assert it.process.stdout.read() == ""
        assert refused(it.port)


def test_an_address_is_not_shared_with_strangers() -> None:
    """Another router's workers would be given half of our users."""
    listeners = shared_listeners([("127.0.0.1", 0)], 2)
    port = listeners[0].open()[0].getsockname()[1]
    try:
        with pytest.raises(PortTaken):
            shared_listeners([("127.0.0.1", port)], 2)
        with pytest.raises(PortTaken):
            listen("127.0.0.1", port)
    finally:
        for listener in listeners:
            listener.close()


def test_no_connection_waits_for_a_worker_that_failed_and_does_not_serve_yet() -> None:
    """Its socket is open again, for it to listen on: all connections are the other worker's."""
    one, other = shared_listeners([("127.0.0.1", 0)], 2)
    try:
        [serving] = one.open()
        other.close()
        other.open()
        serving.settimeout(PATIENCE_S)
        for _ in range(ENOUGH):
            with socket.create_connection(serving.getsockname(), PATIENCE_S):
                serving.accept()[0].close()
    finally:
        one.close()
        other.close()


def test_the_first_restart_is_immediate_and_each_further_pause_doubles() -> None:
    """Up to half a minute: a fault that stays must not eat the machine."""
    assert [restart_pause(deaths) for deaths in range(1, 10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert restart_pause(10_000) == 30


@pytest.mark.parametrize(
    ("before", "lived", "deaths"),
    [(0, 0.1, 1), (3, 0.1, 4), (3, STABLE_SECONDS, 1), (0, STABLE_SECONDS, 1)],
)
def test_a_worker_that_lived_long_has_not_died_of_its_start(
    before: int, lived: float, deaths: int
) -> None:
    """Only deaths in a row count."""
    assert deaths_in_a_row(before, lived) == deaths
