"""Tasks: which exchange they work for, and containment of code that asks for the process's end.

asyncio lets `SystemExit` and `KeyboardInterrupt` out of any task, through the loop: one call of
`sys.exit` in a task of a stack would end every stream there is. (A callback given to the loop
itself cannot be wrapped: there `cutover.server.serve` lets the loop go on.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from typing import Any, Final, TypeVar, cast

from contract.errors import CutoverError

Report = Callable[[BaseException], None]
_Coroutine = Coroutine[Any, Any, Any]
Result = TypeVar("Result")

CANCELLED: Final = (asyncio.CancelledError, GeneratorExit)
"""How code is asked to end; let it pass before catching `ANYTHING`."""
ANYTHING: Final = BaseException
"""What foreign code may raise: a library in Rust that panics raises no `Exception`."""
EXCHANGE: ContextVar[str] = ContextVar("exchange", default="")
"""The id of the exchange a task works for, for the log; empty where it works for none."""

_report: ContextVar[Report | None] = ContextVar("report", default=None)


class ExitContained(CutoverError):
    """Contained code asked for the end of the process."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} in a task of its own")


def exchange_context(exchange: str) -> Context:
    """Make a context that is empty but for the exchange."""
    context = Context()
    context.run(EXCHANGE.set, exchange)
    return context


def contain(report: Report) -> Token[Report | None]:
    """Contain all tasks the current one makes, and those they make; each such end is reported.

    What the current task raises itself it has to catch.
    """
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _ContainingFactory):
        loop.set_task_factory(cast("Any", _ContainingFactory(factory)))
    return _report.set(report)


@contextmanager
def contained(report: Report) -> Iterator[None]:
    """Contain the tasks made in a block; afterwards the task holds no reference to `report`."""
    token = contain(report)
    try:
        yield
    finally:
        _report.reset(token)


class _ContainingFactory:
    """A task factory on top of another."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coroutine: _Coroutine, **options: Any
    ) -> asyncio.Future[Any]:
        context = options.get("context")
        report = _report.get() if context is None else context.get(_report)
        run = coroutine if report is None else _run_contained(coroutine, report)
        task: asyncio.Future[Any] = (
            self._factory(loop, run, **options)
            if self._factory
            else asyncio.Task(run, loop=loop, **options)
        )
        if report is not None:
            # One cancelled before its first step would never have been awaited.
            task.add_done_callback(lambda _: coroutine.close())
        return task


async def _run_contained(coroutine: _Coroutine, report: Report) -> Any:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        report(error)
        raise ExitContained(type(error).__name__) from error


async def ended(work: Awaitable[Result]) -> Result:
    """Await work to its end in a task of its own, however often that is interrupted.

    An interruption is raised afterwards, in place of what the work returned or raised.
    """
    task = asyncio.ensure_future(work)
    interrupted = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError
    return task.result()
