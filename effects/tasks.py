"""Containment: code that asks for the end of the process ends itself and nothing else.

asyncio lets `SystemExit` and `KeyboardInterrupt` out of any task, through the loop: one call of
`sys.exit` in a task of a stack would end every stream there is. (A callback given to the loop
itself cannot be wrapped: there `cutover.server.lasting` lets the loop go on.)
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, cast

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    Told = Callable[[BaseException], None]
    Made = Coroutine[Any, Any, Any]

CANCELLED: Final = (asyncio.CancelledError, GeneratorExit)
"""How code is told to end; whoever catches `ANYTHING` lets it pass first."""
ANYTHING: Final = BaseException
"""What foreign code may raise: a library in Rust that panics raises no `Exception`."""

EXCHANGE: ContextVar[str] = ContextVar("exchange", default="")
"""The id of the exchange a task works for, for the log; empty where it works for none."""

_told: ContextVar[Told | None] = ContextVar("told", default=None)


def belonging(exchange: str) -> Context:
    """Make a context that is empty but for the exchange."""
    context = Context()
    context.run(EXCHANGE.set, exchange)
    return context


class EndContained(CutoverError):
    """Contained code asked for the end of the process."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} in a task of its own")


def contain(told: Told) -> Token[Told | None]:
    """Contain all tasks the current one makes, and those they make; `told` of each such end.

    What the current task raises itself it has to catch.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    if not isinstance(before, _Containing):
        loop.set_task_factory(cast("Any", _Containing(before)))
    return _told.set(told)


@contextmanager
def contained(told: Told) -> Iterator[None]:
    """Contain the tasks made in a block: afterwards, the task keeps nobody who is told alive."""
    token = contain(told)
    try:
        yield
    finally:
        _told.reset(token)


class _Containing:
    """A task factory on top of another."""

    def __init__(self, before: Any) -> None:
        self._make = before or _plain

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        made: Made,
        **more: Any,
    ) -> asyncio.Future[Any]:
        context = more.get("context")
        told = _told.get() if context is None else context.get(_told)
        if told is None:
            return self._make(loop, made, **more)
        task: asyncio.Future[Any] = self._make(loop, _ends_alone(made, told), **more)
        # One cancelled before its first step would never have been awaited.
        task.add_done_callback(lambda _: made.close())
        return task


def _plain(loop: asyncio.AbstractEventLoop, made: Made, **more: Any) -> asyncio.Future[Any]:
    return asyncio.Task(made, loop=loop, **more)


async def _ends_alone(made: Made, told: Told) -> Any:
    try:
        return await made
    except (SystemExit, KeyboardInterrupt) as error:
        told(error)
        raise EndContained(type(error).__name__) from error
