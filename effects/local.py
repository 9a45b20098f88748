"""Ports that need no other machine: clock, ids, humans, external effects; and no workers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NoReturn
from uuid import uuid4

from contract.errors import EffectFailed, Fault, Paused
from contract.external import IN_DOUBT, ExternalCall, ExternalUpdate, PerformedCall
from contract.human import HumanAnswer, OpenQuestion
from contract.workers import AuditEntry, WorkerCall

START = datetime(2026, 1, 1, tzinfo=UTC)


class SystemClock:
    """The machine's clock."""

    async def now(self, site: str) -> datetime:
        """Return the time, aware, in UTC."""
        return datetime.now(UTC)

    def time(self) -> float:
        """Return the seconds since the Unix epoch, for stores that count leases."""
        return time.time()


class ManualClock:
    """A clock that stands still until it is advanced; `start` must be aware."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start.astimezone(UTC)

    async def now(self, site: str) -> datetime:
        """Return the time, aware, in UTC."""
        return self._now

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        return self._now.timestamp()

    def advance(self, seconds: float) -> None:
        """Move forward (or, with a negative number, back)."""
        self._now += timedelta(seconds=seconds)


class RandomIds:
    """Unique identifiers: 32 hexadecimal digits, 122 random bits."""

    async def new(self, site: str) -> str:
        """Make an identifier."""
        return uuid4().hex


class CountingIds:
    """Identifiers in a row: `id-1`, `id-2` and so on."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._numbers = count(1)

    async def new(self, site: str) -> str:
        """Make the next identifier."""
        return f"{self._prefix}-{next(self._numbers)}"


class NoHuman:
    """No human: for flows that ask nothing, and runs without a user."""

    async def open(self, site: str, question: OpenQuestion) -> NoReturn:
        """Refuse the question: fault `human_unavailable`."""
        raise EffectFailed(Fault("human_unavailable"))

    async def answer(self, site: str, hitl_id: str) -> NoReturn:
        """Refuse as well."""
        raise EffectFailed(Fault("human_unavailable"))


class NoWorkers:
    """No workers: for flows that instruct none."""

    def run(self, site: str, call: WorkerCall) -> NoReturn:
        """Refuse: fault `worker_unavailable`."""
        raise EffectFailed(Fault("worker_unavailable"))


class NoAudit:
    """No audit log: for flows that instruct no workers."""

    async def append(self, site: str, entry: AuditEntry) -> NoReturn:
        """Refuse: fault `audit_unavailable`."""
        raise EffectFailed(Fault("audit_unavailable"))


class CallerPerforms:
    """External effects, each carried out by who called.

    A call without the means to carry it out, as one is that a stored tape begins with, has fault
    `effect_in_doubt`: nobody is there who could do it, or say whether it was done.
    """

    async def read(self, site: str, call: ExternalCall) -> AsyncIterator[ExternalUpdate]:
        """Let the caller read."""
        async for update in _performed(call):
            yield update

    async def run(self, site: str, call: ExternalCall) -> AsyncIterator[ExternalUpdate]:
        """Let the caller carry it out."""
        async for update in _performed(call):
            yield update


def _performed(call: ExternalCall) -> AsyncIterator[ExternalUpdate]:
    if not isinstance(call, PerformedCall):
        raise EffectFailed(Fault(IN_DOUBT))
    return call.updates()


class ScriptedHuman:
    """The fake of the port: answers in the order of the questions, then leaves them open.

    `questions` holds those it was asked; ids are `hitl-1`, `hitl-2` and so on.
    """

    def __init__(self, answers: Iterable[HumanAnswer] = ()) -> None:
        self._answers = list(answers)
        self.questions: dict[str, OpenQuestion] = {}

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store the question; returns its id."""
        hitl_id = f"hitl-{len(self.questions) + 1}"
        self.questions[hitl_id] = question
        return hitl_id

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer; raises `Paused` while there is none."""
        number = list(self.questions).index(hitl_id) if hitl_id in self.questions else -1
        if not 0 <= number < len(self._answers):
            raise Paused(hitl_id)
        return self._answers[number]
