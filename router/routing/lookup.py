"""Lookups a request can do without: waited for briefly, and skipped for a while after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from contract.errors import CutoverError, EffectFailed
from effects.circuit_breaker import Dependency

Answer = TypeVar("Answer")

WAIT_SECONDS = 0.05
"""How long a request waits for an answer that it can do without."""
REST_SECONDS = 1.0
"""How long lookups are skipped after a failure; then one of them probes."""

log = logging.getLogger(__name__)


class LookupFailed(CutoverError):
    """A dependency that is no effect cannot answer; `code` is a stable word."""

    def __init__(self, code: str) -> None:
        super().__init__(f"no answer: {code}")
        self.code = code


class BoundedLookup:
    """Looks something up for requests that go on without an answer.

    `consequence` says what holds while there is none; `fault` is None while there is one.
    """

    def __init__(self, name: str, consequence: str, monotonic: Callable[[], float]) -> None:
        self.consequence = consequence
        self._dependency = Dependency(name, consequence, monotonic, rest=REST_SECONDS)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def fault(self) -> str | None:
        """What is wrong now, and the consequence."""
        return self._dependency.fault

    async def call(
        self,
        call: Callable[[], Coroutine[Any, Any, Answer]],
        store: Callable[[Answer], None] = lambda _: None,
    ) -> Answer | None:
        """Return the answer of a call if it comes in time; `store` gets it also when it is late.

        A late call is not cancelled: a first connection may take longer than a request can wait,
        and would never be made.
        """
        task = self.start(call, store)
        if task is None:
            return None
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not task.done():
            self._dependency.failed(f"no answer within {WAIT_SECONDS:g} s")
        elif not task.cancelled() and task.exception() is None:
            self._dependency.answered()
            return task.result()
        return None

    def start(
        self,
        call: Callable[[], Coroutine[Any, Any, Answer]],
        store: Callable[[Answer], None] = lambda _: None,
    ) -> asyncio.Task[Answer] | None:
        """Start a call that nothing waits for; returns None where calls are skipped."""
        if not self._dependency.permitted():
            return None
        name = f"look up {self._dependency.name}"
        task = asyncio.create_task(call(), name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, store))
        return task

    async def aclose(self) -> None:
        """Cancel all calls; idempotent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Answer], store: Callable[[Answer], None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            store(task.result())
            return
        self._dependency.failed(_code(failure))


def _code(failure: BaseException) -> str:
    match failure:
        case EffectFailed():
            return failure.fault.code
        case LookupFailed():
            return failure.code
        case _:
            log.error("a lookup failed", exc_info=failure)
            return type(failure).__name__
