"""What it costs the router to count what became of an exchange; prints figures as JSON.

python -m benchmarks.parts.outcomes ROUNDS
"""

from __future__ import annotations

import sys
import time
from typing import Final

import msgspec

from benchmarks.parts.compare import STREAMS, runs_of
from benchmarks.rows import BenchRow, at_most
from contract.flows.chat import CHAT
from evidence.outcomes import counts_of, outcome_of

EXCHANGES: Final = 1_000
MOST_MICROSECONDS: Final = 30.0


def main() -> None:
    """Measure and print."""
    sys.stdout.buffer.write(msgspec.json.encode([measure(int(sys.argv[1]))]))


def measure(rounds: int) -> BenchRow:
    """Count the served run of an exchange whose first text is known, as the router does."""
    runs = runs_of(0)[:1]
    took = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(EXCHANGES):
            found = outcome_of(runs, CHAT, first_text=0, conversation="")
            if found is not None:
                counts_of(found)
        took.append((time.process_time() - began) / EXCHANGES * 1e6)
    how = f"{STREAMS}; processor time, the least of {rounds} rounds of {EXCHANGES:,}"
    return at_most("outcomes.live", min(took), "µs", MOST_MICROSECONDS, how)


if __name__ == "__main__":
    main()
