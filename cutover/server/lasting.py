"""Lasting: a callback that asks for the end of the process ends itself, as tasks do.

Tasks are contained where they are made (`effects/tasks.py`). What a stack gives to the loop
itself (`call_soon`, `call_later`) nobody can wrap: asyncio lets `SystemExit` out of it through
the loop, which stands still. Nothing is lost but that callback: the loop can go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import uvloop

log = logging.getLogger(__name__)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end of `main`, whoever else asks for one; what `main` raises is raised."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        serving = runner.get_loop().create_task(main)
        while not serving.done():
            try:
                runner.run(_end_of(serving))
            except SystemExit:
                if serving.done():
                    raise
                log.exception("a callback asked for the end of the process")


async def _end_of(serving: asyncio.Task[None]) -> None:
    await serving
