"""What this process uses of its machine, as Linux reports it."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CONTROL_GROUPS = Path("/sys/fs/cgroup")


class ProcessUsage(NamedTuple):
    """Processor seconds since the start, resident bytes, open descriptors and their limit."""

    cpu_seconds: float
    memory_bytes: int
    descriptors: int
    descriptor_limit: int


def process_usage() -> ProcessUsage:
    """Return what this process uses now; raises `OSError` where there is no `/proc`."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return ProcessUsage(
        used.ru_utime + used.ru_stime,
        pages * resource.getpagesize(),
        len(list(Path("/proc/self/fd").iterdir())) - 1,  # one is that of the list itself
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def memory_limit() -> int:
    """Return the bytes this machine has, or fewer that the control group allows."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        group = Path("/proc/self/cgroup").read_text("ascii").rpartition("::")[2].strip()
        for folder in (CONTROL_GROUPS, Path(f"{CONTROL_GROUPS}{group}")):
            with suppress(OSError, ValueError):  # "max": no limit
                limit = min(limit, int((folder / "memory.max").read_text("ascii")))
    return limit
