"""Large pieces of memory go back to the system, whatever small stands between them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from cutover.server.serve import map_large_allocations

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

assert map_large_allocations() == (sys.argv[1] == "given")
small = []
before = held()
for size in (9_000_000, 8_000_000, 7_000_000):
    pieces = []
    for _ in range(20):
        pieces.append(bytes(size))
        small.append(bytes(100_000))
    pieces.clear()
print(held() - before)
"""


def left(environ: dict[str, str], given: str) -> int:
    """Return the bytes a process holds after it has released all large blocks."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        capture_output=True,
        check=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's alone")
def test_what_is_large_is_given_back() -> None:
    """Left alone, glibc keeps a good part of it between what is small and still held."""
    assert left({}, "given") < 32_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's alone")
def test_who_has_decided_otherwise_is_left_alone() -> None:
    """Variables of glibc go before what suits a router."""
    left({"MALLOC_MMAP_THRESHOLD_": "33554432"}, "kept")
