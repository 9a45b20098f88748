"""Shutdown: the process exits even if tasks, threads or callbacks of a stack do not end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

log = logging.getLogger(__name__)

EXIT_SECONDS = 3.0
"""What tasks and threads get to end once everything else is closed."""


def run_until_closed(
    main: Coroutine[Any, Any, None],
    seconds: float = EXIT_SECONDS,
    end: Callable[[int], object] = os._exit,
) -> None:
    """Run a coroutine on uvloop and raise what it raises; then end the process if need be.

    A task that ignores its cancellation would keep the loop running, a tool's blocked thread the
    interpreter: after `seconds` `end` is called instead.
    """
    before = set(threading.enumerate())
    timers: list[threading.Timer] = []

    def remaining_threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one not in before and not one.daemon]

    def abandon(what: str) -> None:
        log.error("the process ends while these are still running: %s", what)
        logging.shutdown()
        end(0)

    def abandon_tasks(loop: asyncio.AbstractEventLoop, main: asyncio.Task[object] | None) -> None:
        names = sorted(task.get_name() for task in asyncio.all_tasks(loop) - {main})
        abandon(f"tasks: {', '.join(names)}")

    async def closing() -> None:
        try:
            await main
        finally:
            arguments = asyncio.get_running_loop(), asyncio.current_task()
            timer = threading.Timer(seconds, abandon_tasks, arguments)
            timer.daemon = True
            timer.start()
            timers.append(timer)

    try:
        run_through_system_exits(closing())
    finally:
        for timer in timers:
            timer.cancel()
        deadline = time.monotonic() + seconds
        for thread in remaining_threads():
            thread.join(max(deadline - time.monotonic(), 0.0))
        if blocked := remaining_threads():
            abandon(f"threads: {', '.join(thread.name for thread in blocked)}")


def run_through_system_exits(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end although callbacks on the loop raise `SystemExit`.

    Tasks are contained where they are created (`effects/tasks.py`); what a stack schedules by
    `call_soon` is not, and asyncio lets its `SystemExit` out. Only that callback is lost.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        task = runner.get_loop().create_task(main)

        async def wait() -> None:
            await task

        while not task.done():
            try:
                runner.run(wait())
            except SystemExit:
                if task.done():
                    raise
                log.exception("a callback asked for the end of the process")
