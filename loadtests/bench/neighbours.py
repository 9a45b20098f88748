"""How much of the machine others used while something was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.bench.process import process_cpu
from loadtests.machine import cpu_times

TICKS_A_SECOND = 100
"""Of /proc/stat: USER_HZ, which Linux has kept at 100 for programs."""


class Neighbours:
    """Filled in when the measuring block has ended: `share` of all CPUs, 0 to 1."""

    def __init__(self) -> None:
        self.share = 0.0


@contextmanager
def watching() -> Iterator[Neighbours]:
    """Watch the machine's account beside our own and our children's for as long as the block."""
    found, machine, own = Neighbours(), cpu_times(), family_cpu()
    yield found
    later = cpu_times()
    total = later.total - machine.total
    if total > 0:
        ours = (family_cpu() - own) * TICKS_A_SECOND
        found.share = max(0.0, (later.busy - machine.busy - ours) / total)


def family_cpu() -> float:
    """Give the processor seconds of this process and the children it has now."""
    return time.process_time() + sum(map(process_cpu, children()))


def children() -> list[int]:
    """Find the processes this one has started, by /proc; none where there is no such thing."""
    lists = Path("/proc/self/task").glob("*/children")
    return [int(pid) for listed in lists for pid in listed.read_text("ascii").split()]
