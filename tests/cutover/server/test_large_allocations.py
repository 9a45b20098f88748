"""Large pieces of memory go back to the system, whatever small stands between them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cutover.server.serve import map_large_allocations
from loadtests.processes import child_environment

PROGRAM = """
from cutover.server.serve import map_large_allocations

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

assert map_large_allocations()
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's alone")
def test_what_is_large_is_given_back() -> None:
    """Left alone, glibc keeps a good part of it between what is small and still held."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=child_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout) < 32_000_000, "after all large blocks were released"


@pytest.mark.parametrize("variable", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_decided_otherwise_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Variables of glibc go before what suits a router."""
    monkeypatch.setenv(variable, "33554432")
    assert not map_large_allocations()
