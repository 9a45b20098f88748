"""What tests/conftest.py promises, proven on small suites of their own."""

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LOOKED_FOR_GARBAGE = gc.isenabled()
"""Whether the collector ran while this file was read."""
TRACED_WHILE_READ = sys.gettrace() is not None
"""Whether coverage followed how this file was read."""
PROMISES = Path(__file__).with_name("conftest.py")

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
markers = virtual: on virtual time
"""

SUITE = """
import asyncio
import pytest


async def forever() -> None:
    await asyncio.Event().wait()


async def test_leaves_a_task() -> None:
    test_leaves_a_task.task = asyncio.create_task(forever())


async def test_cancels_its_task_in_the_last_line() -> None:
    asyncio.create_task(forever()).cancel()


def test_has_no_loop() -> None:
    pass
"""

NEEDS_SERVERS = """
def test_of_redis(redis_url: str) -> None:
    pass


def test_of_postgres(postgres_dsn: str) -> None:
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder of tests under the project's own conftest."""
    pytester.makeini(SETTINGS)
    pytester.makeconftest(PROMISES.read_text("utf-8"))
    return pytester


@pytest.mark.untraced
@pytest.mark.slow
def test_a_task_left_behind_fails_its_test(suite: pytest.Pytester) -> None:
    """The test itself passes, its teardown names the task; a cancelled task is none."""
    suite.makepyfile(SUITE)
    result = suite.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*the test left tasks behind*", "*forever()*"])


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome"), [("", "skipped"), ("true", "errors")])
def test_a_missing_server_skips_here_and_fails_in_ci(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str
) -> None:
    """Redis and PostgreSQL are optional on a developer's machine alone."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr("socket.socket.connect_ex", lambda *_: 111)
    suite.makepyfile(NEEDS_SERVERS)
    result = suite.runpytest_inprocess("-rs", "-p", "no:cacheprovider")
    result.assert_outcomes(**{outcome: 2})
    result.stdout.fnmatch_lines(["*no Redis on 127.0.0.1:6379*"])


def test_no_garbage_is_looked_for_while_the_suite_is_read() -> None:
    """Nor among what it consists of, later; among what tests make, it is."""
    assert not LOOKED_FOR_GARBAGE
    assert gc.isenabled()
    assert gc.get_freeze_count()


@pytest.fixture
def tracer() -> Any:
    """Return what follows the lines of a fixture."""
    return sys.gettrace()


def test_coverage_follows_tests_and_fixtures_and_not_how_files_are_read(tracer: Any) -> None:
    """Where it measures at all: then threads have its tracer."""
    measured = threading.gettrace() is not None
    assert (sys.gettrace() is not None, tracer) == (measured, sys.gettrace())
    assert not TRACED_WHILE_READ


@pytest.fixture
def followed_again() -> Iterator[None]:
    """The tracer from before the test is active after it."""
    before = sys.gettrace(), threading.gettrace()
    yield
    assert (sys.gettrace(), threading.gettrace()) == before


@pytest.mark.untraced
@pytest.mark.usefixtures("followed_again")
def test_nobody_follows_a_test_marked_untraced() -> None:
    """Neither here nor in the threads it starts."""
    assert (sys.gettrace(), threading.gettrace()) == (None, None)
