"""What every test has: virtual time where it is marked, the same examples each time, no leaks."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiosqlite
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.virtual_time import VirtualLoop

# All calls to its thread go through here.
_execute: Callable[..., Awaitable[Any]] = aiosqlite.Connection._execute  # noqa: SLF001


async def _execute_held(self: aiosqlite.Connection, *args: Any, **kwargs: Any) -> Any:
    """Hold virtual time while SQLite's thread works."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return await _execute(self, *args, **kwargs)
    loop.hold()
    try:
        return await _execute(self, *args, **kwargs)
    finally:
        loop.release()


aiosqlite.Connection._execute = _execute_held  # type: ignore[method-assign]  # noqa: SLF001

TURNS_TO_END = 20
"""A cancelled graph run needs a dozen."""

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=40,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile("ci")


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests marked `virtual` on the jumping clock and all others on asyncio's loop."""
    if item.get_closest_marker("virtual"):
        return {"virtual": VirtualLoop}
    return {"default": asyncio.new_event_loop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests to `make nightly`, unless a marker is asked for."""
    if config.option.markexpr:
        return
    skipped = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=skipped)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_collection_finish() -> None:
    """Spare later collections what has been imported, and stays."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Keep the interpreter's last collection from types of msgspec, where it sometimes crashes."""
    gc.freeze()


@pytest.fixture(autouse=True)
async def no_task_left_behind() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind."""
    yield
    left: set[asyncio.Task[Any]] = set()
    for _ in range(TURNS_TO_END):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    assert not left, f"tasks left behind: {left}"


def reachable(what: str, *, ok: bool) -> None:
    """Skip a test where a server it needs is away; fail it under CI."""
    if ok:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is not reachable, and CI needs it")
    pytest.skip(f"{what} is not reachable")
