"""A program of its own that runs one command, and lets nothing get away that the command starts.

    python supervisor.py GRACE COMMAND…

It adopts what the command leaves behind (on Linux): a process is found whatever session it is in,
and whatever environment it has. Its standard input is a socket. A byte starts the command; the
answer is the status it ends with, or `E` and the number of the error by which it did not start.
When the socket ends, as the command is cancelled or the router was killed, all that the command has
started ends, too: its process group by SIGTERM, and after `GRACE` seconds what is left by SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

KILL_SECONDS: Final = 5.0
"""For killed processes to go: one that waits for a disk may never."""
_SOCKET: Final = 0
_ADOPT_ORPHANS: Final = 36  # PR_SET_CHILD_SUBREAPER
_BETWEEN_LOOKS: Final = 0.05


def main(grace: float, command: list[str]) -> str:
    """Run a command until it ends, or the socket does; returns the answer."""
    with suppress(AttributeError):  # elsewhere than on Linux there is none
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # those that end a group are for the command
    if not os.read(_SOCKET, 1):
        return ""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - no shell
    except OSError as failure:
        return f"E{failure.errno}"
    while _SOCKET not in select.select([_SOCKET, woken], [], [])[0]:
        os.read(woken, select.PIPE_BUF)
        for pid, status in _ended():
            if pid == child.pid:
                return str(status)
    with suppress(ChildProcessError):  # none is left
        _end_all(grace, woken)
    return ""


def _ended() -> Iterator[tuple[int, int]]:
    """Reap children: yields process id and status; raises `ChildProcessError` after the last."""
    while (found := os.waitpid(-1, os.WNOHANG))[0]:
        yield found[0], os.waitstatus_to_exitcode(found[1])


def _end_all(grace: float, woken: int) -> None:
    """End the children, and their children, which are ours once they are gone."""
    os.killpg(0, signal.SIGTERM)
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < grace + KILL_SECONDS:
        for _ in _ended():
            pass
        if passed >= grace:
            for pid in _children():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if select.select([woken], [], [], _BETWEEN_LOOKS)[0]:
            os.read(woken, select.PIPE_BUF)


def _children() -> Iterator[int]:
    """Yield the processes whose parent this one is."""
    own = str(os.getpid()).encode()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_bytes().rpartition(b")")[2].split()[1] == own:
                yield int(stat.parent.name)


if __name__ == "__main__":
    answer = main(float(sys.argv[1]), sys.argv[2:])
    with suppress(OSError):
        os.write(_SOCKET, answer.encode())
