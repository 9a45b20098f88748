"""What it costs the router to count what became of an exchange; prints figures as JSON.

python -m benchmarks.parts.outcomes ROUNDS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from benchmarks.parts.compare import STREAMS, runs_of
from benchmarks.rows import BenchRow, at_most
from contract.flow import Request
from contract.flows.chat import CHAT, ChatRequest
from effects.tape import Tape
from evidence.outcomes import counts_of, outcome_of
from router.context import Account, Assignment, ExchangeContext
from router.stack import RunOutcome
from router.telemetry.metrics import ExchangeMetrics, MetricValues

EXCHANGES: Final = 1_000
MOST_MICROSECONDS: Final = 30.0
MOST_OBSERVED: Final = 60.0


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1])
    rows = [measure(rounds), measure_observed(rounds), measure_observed(rounds, "ab" * 16)]
    sys.stdout.buffer.write(msgspec.json.encode(rows))


def measure(rounds: int) -> BenchRow:
    """Count the served run of an exchange whose first text is known, as the router does."""
    runs = runs_of(0)[:1]

    def count() -> None:
        found = outcome_of(runs, CHAT, first_text=0, conversation="")
        if found is not None:
            counts_of(found)

    how = f"{STREAMS}; processor time, the least of {rounds} rounds of {EXCHANGES:,}"
    return at_most("outcomes.live", _least(count, rounds), "µs", MOST_MICROSECONDS, how)


def measure_observed(rounds: int, trace: str = "") -> BenchRow:
    """Count an exchange as the observer of metrics does: its times, nodes and exemplars, too."""
    metrics = ExchangeMetrics(MetricValues(), lambda: (), lambda _: trace)
    context = _context()
    name, also = ("traced", ", each with an exemplar") if trace else ("observed", "")
    how = f"{STREAMS}{also}; processor time, the least of {rounds} rounds of {EXCHANGES:,}"
    took = _least(lambda: metrics.finished(context), rounds)
    return at_most(f"outcomes.{name}", took, "µs", MOST_OBSERVED, how)


def _context() -> ExchangeContext:
    """Return an exchange that has been served and recorded."""
    run = runs_of(0)[0]
    return ExchangeContext(
        exchange=run.exchange,
        spec=CHAT,
        request=Request(ChatRequest(message_id="m"), CHAT.options()),
        assignment=Assignment("legacy", 0, "percent"),
        config="v",
        began=0,
        tape=Tape(),
        ended=run.frames[-1][0],
        outcome=RunOutcome("completed"),
        first_text=run.frames[1][0],
        records=[run],
        accounts=[Account(0, 0, ())],
    )


def _least(work: Callable[[], object], rounds: int) -> float:
    """Return the microseconds of processor time that a piece of work takes, in its best round."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(EXCHANGES):
            work()
        took.append((time.process_time() - began) / EXCHANGES * 1e6)
    return min(took)


if __name__ == "__main__":
    main()
