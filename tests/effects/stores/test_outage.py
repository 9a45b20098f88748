"""A server that is silent is skipped: calls fail at once, and probes find out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from effects.circuit_breaker import CONSEQUENCE, PROBE_SECONDS, OutageGuard
from tests.support.clocks import now

pytestmark = pytest.mark.virtual

QUIET = 5.0
ATTEMPT = 10.0
"""How long a silent server lets a probe wait."""


class Server:
    """Answers, or lets every call wait in vain."""

    def __init__(self) -> None:
        self.silent = True
        self.swallows = False
        self.failure: Exception = OSError()
        self.asked: list[float] = []

    async def ask(self) -> None:
        """Wait for an answer."""
        self.asked.append(now())
        if self.silent:
            with suppress(*[asyncio.CancelledError] * self.swallows):
                await asyncio.sleep(ATTEMPT)
            raise self.failure


@pytest.fixture
def server() -> Server:
    """Return a server that is silent."""
    return Server()


@pytest.fixture
async def guard(server: Server) -> AsyncIterator[OutageGuard]:
    """Return the guard of a server that has answered, and has been quiet since."""
    guard = OutageGuard("memory", server.ask, quiet=QUIET, monotonic=now)
    guard.answered()
    await asyncio.sleep(QUIET)
    yield guard
    await guard.aclose()


async def test_a_silent_server_is_skipped_until_it_answers(
    server: Server, guard: OutageGuard, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked in the background, one at a time and with pauses; each change is logged once."""
    began = now()
    with caplog.at_level(logging.INFO, "effects.circuit_breaker"):
        for _ in range(3):
            guard.silent("memory_unavailable")  # two of them had begun before
            assert guard.fault == f"memory_unavailable; {CONSEQUENCE}"
            await asyncio.sleep(ATTEMPT)
        assert [at - began for at in server.asked] == [0, 12, 24]
        server.silent = False
        await asyncio.sleep(ATTEMPT)
    assert guard.fault is None
    assert PROBE_SECONDS == 2.0
    assert len(server.asked) == 4, "and is left alone now that it answers"
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]


async def test_a_server_that_answers_others_is_merely_busy(
    server: Server, guard: OutageGuard
) -> None:
    """Calls that wait in vain for a connection say nothing of a server that is at work."""
    for _ in range(5):
        guard.answered()
        await asyncio.sleep(QUIET - 1)
        guard.silent("memory_unavailable")
    assert guard.fault is None
    assert server.asked == []


async def test_a_server_that_never_answered_is_not_skipped(server: Server) -> None:
    """Opening it fails."""
    guard = OutageGuard("memory", server.ask, quiet=QUIET, monotonic=now)
    await asyncio.sleep(QUIET)
    guard.silent("memory_unavailable")
    assert guard.fault is None


async def test_an_answer_to_a_call_under_way_ends_it(server: Server, guard: OutageGuard) -> None:
    """It had begun before; no further probe is due."""
    guard.silent("memory_unavailable")
    await asyncio.sleep(1)
    guard.answered()
    assert guard.fault is None
    await asyncio.sleep(2 * ATTEMPT)
    assert len(server.asked) == 1


async def test_whatever_a_probe_ends_in_there_is_another(
    server: Server, guard: OutageGuard
) -> None:
    """An unforeseen error does not keep it skipped for ever."""
    server.failure = ZeroDivisionError()
    guard.silent("memory_unavailable")
    await asyncio.sleep(ATTEMPT)
    server.silent = False
    await asyncio.sleep(ATTEMPT)
    assert guard.fault is None


@pytest.mark.parametrize("swallows", [False, True])
async def test_closing_ends_the_probe(
    server: Server, guard: OutageGuard, *, swallows: bool
) -> None:
    """One under way ends, also where a pool swallows its cancellation; none begins."""
    server.swallows = swallows
    guard.silent("memory_unavailable")
    await asyncio.sleep(1)
    await guard.aclose()
    guard.silent("memory_unavailable")
    await asyncio.sleep(2 * ATTEMPT)
    assert len(server.asked) == 1
