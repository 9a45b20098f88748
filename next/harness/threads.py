"""Threads that belong to the run which starts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any

_start, _submit = threading.Thread.start, ThreadPoolExecutor.submit
_blocks: list[int] = []


def _start_here(thread: threading.Thread) -> None:
    context, run = copy_context(), thread.run
    thread.run = lambda: context.run(run)  # type: ignore[method-assign]
    _start(thread)


def _submit_here(pool: ThreadPoolExecutor, /, *args: Any, **named: Any) -> Future[Any]:
    # In an empty context: a thread of the pool outlives the run that happens to need it first.
    return Context().run(_submit, pool, copy_context().run, *args, **named)


def _use(start: object, submit: object) -> None:
    setattr(threading.Thread, "start", start)  # noqa: B010 - a type checker refuses the assignment
    setattr(ThreadPoolExecutor, "submit", submit)  # noqa: B010 - as above


@contextmanager
def contexts_in_threads() -> Iterator[None]:
    """Run threads and work of pools in their starter's context, in the block; blocks may be nested.

    Without it, what a run's code starts in a thread belongs to no run: shadows perform its reads.
    """
    _blocks.append(1)
    _use(_start_here, _submit_here)
    try:
        yield
    finally:
        _blocks.pop()
        if not _blocks:
            _use(_start, _submit)
