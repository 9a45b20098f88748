"""A neighbour: something outside that is asked briefly, and left in peace after it failed."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from contract.errors import CutoverError, EffectFailed
from effects.rest import Rest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Answer = TypeVar("Answer")

WAIT_SECONDS = 0.05
"""How long a request waits for an answer that it can do without."""

log = logging.getLogger(__name__)


class LookupFailed(CutoverError):
    """A neighbour that is no effect cannot answer; `code` is a stable word."""

    def __init__(self, code: str) -> None:
        super().__init__(f"no answer: {code}")
        self.code = code


class BoundedLookup:
    """Asks on behalf of requests that go on without an answer.

    `meanwhile` says what holds while there is none; `fault` says it in `/readyz`.
    """

    def __init__(self, name: str, meanwhile: str, monotonic: Callable[[], float]) -> None:
        self.meanwhile = meanwhile
        self._rest = Rest(name, meanwhile, monotonic)
        self._asked: set[asyncio.Task[Any]] = set()

    @property
    def fault(self) -> str | None:
        """What is wrong now, and what holds meanwhile."""
        return self._rest.fault

    async def ask(
        self, call: Callable[[], Coroutine[Any, Any, Answer]], keep: Callable[[Answer], None]
    ) -> None:
        """Make a call and wait for it a moment; `keep` is given its answer, also when that is late.

        A call that is late is not cancelled: a first connection may take longer than a request
        can wait, and would never be made.
        """
        if not self._rest.willing():
            return
        task = asyncio.create_task(call(), name=f"ask {self._rest.name}", context=Context())
        self._asked.add(task)
        task.add_done_callback(lambda done: self._done(done, keep))
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not task.done():
            self._rest.failed(f"no answer within {WAIT_SECONDS:g} s")
        elif not task.cancelled() and task.exception() is None:
            self._rest.answered()

    async def aclose(self) -> None:
        """Wait for no answer any more; idempotent."""
        asked = tuple(self._asked)
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)

    def _done(self, task: asyncio.Task[Answer], keep: Callable[[Answer], None]) -> None:
        self._asked.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            keep(task.result())
            return
        self._rest.failed(_word(failure))


def _word(failure: BaseException) -> str:
    """Give the stable word for a failure; what nobody foresaw is told to the log as it is."""
    match failure:
        case EffectFailed():
            return failure.fault.code
        case LookupFailed():
            return failure.code
        case _:
            log.error("asking failed", exc_info=failure)
            return type(failure).__name__
