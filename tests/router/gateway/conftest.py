"""Fixtures of gateway tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def no_event_watcher() -> AsyncIterator[None]:
    """End the task with which the SDK's library of events watches each loop for good."""
    yield
    left = [task for task in asyncio.all_tasks() if "_shutdown_watcher" in repr(task)]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
