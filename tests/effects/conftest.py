"""A world per test: each database in turn, a clock that tests move."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from cutover import Exchange, Run
from cutover.errors import Completed
from effects.world import EffectSettings, World, open_world
from tests.support.databases import postgresql

Policy = Literal["live", "play"]

REDIS = "redis://127.0.0.1:6379/9"


class MovableClock:
    """Seconds since the epoch, which pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@contextmanager
def taped(exchange: Exchange, policy: Policy = "live") -> Iterator[Run]:
    """Run a block as a stack would be: its calls go on the tape, or are found there."""
    run = Run(exchange, "stack", policy=policy)
    with run.current():
        yield run
    run.end(Completed())


@pytest.fixture
def clock() -> MovableClock:
    """The clock of the test's world."""
    return MovableClock()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database; in PostgreSQL a schema that is dropped after the test."""
    if request.param == "memory":
        yield "sqlite+aiosqlite://"
        return
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/new/cutover.db"
        return
    with postgresql() as url:
        yield url


@pytest.fixture
async def world(database_url: str, clock: MovableClock) -> AsyncIterator[World]:
    """A world on each database."""
    async with open_world(EffectSettings(database=database_url), clock) as opened:
        yield opened
