"""Deadlines of one stream, decided without a clock: every moment is given, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from contract.errors import Fault, FaultCode
from effects.model.entry import Limits

DRAIN_SECONDS = 0.05
"""How long the connection may take to end after `[DONE]`; ended in time, it is used again."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When waiting ends, and what it is called when it does."""

    when: float
    code: FaultCode
    seconds: float

    @property
    def fault(self) -> Fault:
        """The fault of having waited in vain."""
        return Fault(self.code, retryable=True, data={"seconds": self.seconds})


def total_of(limits: Limits, now: float) -> Deadline:
    """Give the end of a whole call that begins now."""
    return Deadline(now + limits.total, "model_timeout_total", limits.total)


class Deadlines:
    """Knows which limit holds at each stage of a stream.

    `ends` is when all must be over, where that is not the limits' own `total` from now.
    """

    __slots__ = ("_answered", "_ends", "_heard", "_limits", "_over", "_spoke", "_start")

    def __init__(self, limits: Limits, now: float, ends: Deadline | None = None) -> None:
        self._limits = limits
        self._start = self._heard = now
        self._ends = ends or total_of(limits, now)
        self._answered = self._spoke = False
        self._over: float | None = None

    def answered(self) -> None:
        """Note that the response's headers have come."""
        self._answered = True

    def heard(self, now: float, *, spoke: bool) -> None:
        """Note bytes; `spoke` once the model has said anything."""
        self._heard = now
        self._spoke = spoke

    def finished(self, now: float, *, done: bool) -> None:
        """Note that the answer is complete, and whether the stream said that it is over."""
        wait = min(DRAIN_SECONDS, self._limits.tail) if done else self._limits.tail
        until = now + wait
        self._over = until if self._over is None else min(self._over, until)

    def next(self) -> Deadline:
        """Return the deadline of the wait that begins now."""
        stage = self._of_stage()
        return stage if stage.when < self._ends.when else self._ends

    def _of_stage(self) -> Deadline:
        limits = self._limits
        if self._over is not None:
            return Deadline(self._over, "model_timeout_idle", limits.tail)
        if self._spoke:
            return Deadline(self._heard + limits.idle, "model_timeout_idle", limits.idle)
        if self._answered or limits.first_token < limits.first_byte:
            code: FaultCode = "model_timeout_first_token"
            return Deadline(self._start + limits.first_token, code, limits.first_token)
        code = "model_timeout_first_byte"
        return Deadline(self._start + limits.first_byte, code, limits.first_byte)
