"""Programs for tests of commands, run by this interpreter, and whether any of them is left."""

from __future__ import annotations

import sys

import psutil

TREE = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rest = [sys.executable, "-SEc", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); signal.pause()"]
children = [subprocess.Popen(rest, stdout=subprocess.PIPE, start_new_session=own)
            for own in (False, True)]
for child in children:
    child.stdout.readline()
print("tree", os.getpid(), *(child.pid for child in children), flush=True)
{then}
"""
"""A program that ignores SIGTERM, with a child in its process group and another in a session of its
own, both ignoring it as well; it writes `tree` and the three process ids."""


def python(program: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a program."""
    return (sys.executable, "-SEc", program, *arguments)


def tree(then: str = "signal.pause()") -> tuple[str, ...]:
    """Return the command of `TREE`, which `then` does something."""
    return python(TREE.format(then=then))


def running(pids: str) -> list[int]:
    """Return which of the processes of a line `tree …` still run."""
    left = []
    for pid in map(int, pids.split()[1:]):
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                left.append(pid)
        except psutil.NoSuchProcess:
            continue
    return left
