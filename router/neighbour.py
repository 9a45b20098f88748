"""A neighbour: something outside that is asked briefly, and left in peace after it failed."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from contract.errors import CutoverError, EffectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Answer = TypeVar("Answer")

WAIT_SECONDS = 0.05
"""How long a request waits for an answer that it can do without."""
REST_SECONDS = 1.0
"""How long nobody asks after a failure; then one request at a time finds out."""

log = logging.getLogger(__name__)


class NoAnswer(CutoverError):
    """A neighbour that is no effect cannot answer; `code` is a stable word."""

    def __init__(self, code: str) -> None:
        super().__init__(f"no answer: {code}")
        self.code = code


class Neighbour:
    """Asks on behalf of requests that go on without an answer.

    `meanwhile` says what holds while there is none; `fault` says it in `/readyz`.
    """

    def __init__(self, name: str, meanwhile: str, monotonic: Callable[[], float]) -> None:
        self.name = name
        self.fault: str | None = None
        self.meanwhile = meanwhile
        self._monotonic = monotonic
        self._again = 0.0
        self._asked: set[asyncio.Task[Any]] = set()

    async def ask(
        self, call: Callable[[], Coroutine[Any, Any, Answer]], keep: Callable[[Answer], None]
    ) -> None:
        """Make a call and wait for it a moment; `keep` is given its answer, also when that is late.

        A call that is late is not cancelled: a first connection may take longer than a request
        can wait, and would never be made.
        """
        if not self._willing():
            return
        task = asyncio.create_task(call(), name=f"ask {self.name}", context=Context())
        self._asked.add(task)
        task.add_done_callback(lambda done: self._done(done, keep))
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not task.done():
            self._failed(f"no answer within {WAIT_SECONDS:g} s")
        elif not task.cancelled() and task.exception() is None:
            self._answered()

    async def aclose(self) -> None:
        """Wait for no answer any more; idempotent."""
        asked = tuple(self._asked)
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)

    def _willing(self) -> bool:
        if self.fault is None:
            return True
        now = self._monotonic()
        if now < self._again:
            return False
        self._again = now + REST_SECONDS
        return True

    def _done(self, task: asyncio.Task[Answer], keep: Callable[[Answer], None]) -> None:
        self._asked.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            keep(task.result())
            return
        self._failed(_word(failure))

    def _failed(self, why: str) -> None:
        if self.fault is None:
            log.warning("%s: %s; %s", self.name, why, self.meanwhile)
        self.fault = f"{why}; {self.meanwhile}"
        self._again = self._monotonic() + REST_SECONDS

    def _answered(self) -> None:
        if self.fault is not None:
            log.info("%s: answers again", self.name)
        self.fault = None


def _word(failure: BaseException) -> str:
    """Give the stable word for a failure; what nobody foresaw is told to the log as it is."""
    match failure:
        case EffectFailed():
            return failure.fault.code
        case NoAnswer():
            return failure.code
        case _:
            log.error("asking failed", exc_info=failure)
            return type(failure).__name__
