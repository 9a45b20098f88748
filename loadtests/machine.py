"""How busy the machine was: a busy machine voids a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BUSIEST = 0.97
_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks of all CPUs since the machine started."""

    busy: int
    total: int

    def share_since(self, earlier: CpuTimes) -> float | None:
        """Share of all CPUs that was busy in between; None when no tick has passed."""
        total = self.total - earlier.total
        return (self.busy - earlier.busy) / total if total > 0 else None


def cpu_times() -> CpuTimes:
    """Read the machine's account; zeros where there is none (not Linux)."""
    try:
        first = _STAT.read_text("ascii").partition("\n")[0]
    except OSError:
        return CpuTimes(0, 0)
    return parse_times(first)


def parse_times(line: str) -> CpuTimes:
    """Read `cpu user nice system idle iowait irq softirq steal …` (proc(5)).

    Guests are counted in `user` already; stolen time was not ours, so it counts as busy.
    """
    ticks = [int(word) for word in line.split()[1:9]]
    idle = sum(ticks[3:5])
    return CpuTimes(sum(ticks) - idle, sum(ticks))
