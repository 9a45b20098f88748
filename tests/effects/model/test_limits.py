"""Which limit holds at which stage of a stream."""

from __future__ import annotations

from contract.errors import Fault
from effects.model import Limits
from effects.model.stream import DRAIN_SECONDS, StreamDeadlines

LIMITS = Limits(first_byte=3, first_token=10, idle=5, total=100, tail=1)


def due(deadlines: StreamDeadlines) -> tuple[float, str]:
    """Return when the next wait ends, and how."""
    deadline = deadlines.next()
    return deadline.when, deadline.code


def test_the_stages_of_a_stream() -> None:
    """Headers, first token, silence in between; the first two count from the start."""
    deadlines = StreamDeadlines(LIMITS, 1000)
    assert due(deadlines) == (1003, "model_timeout_first_byte")
    deadlines.answered()
    assert due(deadlines) == (1010, "model_timeout_first_token")
    deadlines.heard(1004, spoke=False)
    assert due(deadlines) == (1010, "model_timeout_first_token")
    deadlines.heard(1005, spoke=True)
    assert due(deadlines) == (1010, "model_timeout_idle")
    deadlines.heard(1009, spoke=True)
    assert due(deadlines) == (1014, "model_timeout_idle")


def test_the_total_ends_every_stage() -> None:
    """Whatever stage it is."""
    deadlines = StreamDeadlines(LIMITS, 0)
    deadlines.answered()
    deadlines.heard(98, spoke=True)
    assert due(deadlines) == (100, "model_timeout_total")


def test_a_first_token_due_before_the_first_byte() -> None:
    """The shorter limit holds."""
    deadlines = StreamDeadlines(Limits(first_byte=30, first_token=2), 0)
    assert due(deadlines) == (2, "model_timeout_first_token")


def test_after_the_finish_reason_the_tail() -> None:
    """Once; later pieces do not prolong it."""
    deadlines = StreamDeadlines(LIMITS, 0)
    deadlines.finished(20, done=False)
    deadlines.finished(20.5, done=False)
    assert deadlines.next().when == 21


def test_after_done_only_the_end_of_the_connection() -> None:
    """It is worth a moment, for then the connection is used again."""
    deadlines = StreamDeadlines(LIMITS, 0)
    deadlines.finished(20, done=False)
    deadlines.finished(20.2, done=True)
    assert deadlines.next().when == 20.2 + DRAIN_SECONDS


def test_a_fault_names_its_limit() -> None:
    """In seconds; asking again could help."""
    fault = StreamDeadlines(LIMITS, 0).next().fault
    assert fault == Fault("model_timeout_first_byte", retryable=True, data={"seconds": 3})
