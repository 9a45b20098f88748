"""A server that is silent is skipped: calls fail at once, and probes find out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from effects.circuit_breaker import CONSEQUENCE, PROBE_SECONDS, OutageGuard

pytestmark = pytest.mark.virtual

QUIET = 5.0
ATTEMPT = 10.0
"""How long the one who is silent lets an attempt wait."""


class Server:
    """Answers, or lets everybody wait in vain."""

    def __init__(self) -> None:
        self.silent = True
        self.failure: Exception = OSError()
        self.asked: list[float] = []

    async def ask(self) -> None:
        """Wait for an answer."""
        self.asked.append(now())
        if self.silent:
            await asyncio.sleep(ATTEMPT)
            raise self.failure


def now() -> float:
    """Tell the time of the loop, which jumps in virtual time."""
    return asyncio.get_running_loop().time()


async def spared_after(server: Server) -> OutageGuard:
    """Make one who has answered, and then let a call wait in vain."""
    spared = OutageGuard("memory", server.ask, quiet=QUIET, monotonic=now)
    spared.answered()
    await asyncio.sleep(QUIET)
    spared.silent("memory_unavailable")
    return spared


async def test_who_said_nothing_is_spared_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked in the background, one at a time and with pauses; each change is told once."""
    server = Server()
    with caplog.at_level(logging.INFO, "effects.circuit_breaker"):
        spared = await spared_after(server)
        began = now()
        for _ in range(3):
            assert spared.fault == f"memory_unavailable; {CONSEQUENCE}"
            spared.silent("memory_unavailable")  # calls that had begun before
            await asyncio.sleep(ATTEMPT)
        assert [at - began for at in server.asked] == [0, 12, 24]
        server.silent = False
        await asyncio.sleep(ATTEMPT)
    assert spared.fault is None
    assert PROBE_SECONDS == 2.0
    assert len(server.asked) == 4, "and is left alone now that it answers"
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    await spared.aclose()


async def test_who_answers_others_is_merely_busy() -> None:
    """Calls that wait in vain for a connection say nothing of a server that is at work."""
    server = Server()
    spared = OutageGuard("memory", server.ask, quiet=QUIET, monotonic=now)
    for _ in range(5):
        spared.answered()
        await asyncio.sleep(QUIET - 1)
        spared.silent("memory_unavailable")
    assert spared.fault is None
    assert server.asked == []


async def test_who_never_answered_is_not_spared() -> None:
    """Opening it fails."""
    server = Server()
    spared = OutageGuard("memory", server.ask, quiet=QUIET, monotonic=now)
    await asyncio.sleep(QUIET)
    spared.silent("memory_unavailable")
    assert spared.fault is None


async def test_an_answer_to_a_call_under_way_ends_it() -> None:
    """It had begun before; no further probe is due."""
    server = Server()
    spared = await spared_after(server)
    await asyncio.sleep(1)
    spared.answered()
    assert spared.fault is None
    await asyncio.sleep(2 * ATTEMPT)
    assert len(server.asked) == 1
    await spared.aclose()


async def test_whatever_an_attempt_ends_in_there_is_another() -> None:
    """An unforeseen error does not keep it skipped for ever."""
    server = Server()
    server.failure = ZeroDivisionError()
    spared = await spared_after(server)
    await asyncio.sleep(ATTEMPT)
    server.silent = False
    await asyncio.sleep(ATTEMPT)
    assert spared.fault is None
    await spared.aclose()


async def test_closed_it_asks_no_more() -> None:
    """A probe under way ends, and none begins."""
    server = Server()
    spared = await spared_after(server)
    await asyncio.sleep(0)
    await spared.aclose()
    spared.silent("memory_unavailable")
    await asyncio.sleep(2 * ATTEMPT)
    assert len(server.asked) == 1
    await spared.aclose()


async def test_closed_it_ends_whoever_swallows_the_cancellation() -> None:
    """As a pool of connections may, when it comes together with its answer."""
    server = Server()

    async def ask() -> None:
        with suppress(asyncio.CancelledError):
            await server.ask()
        raise server.failure

    spared = OutageGuard("memory", ask, quiet=QUIET, monotonic=now)
    spared.answered()
    await asyncio.sleep(QUIET)
    spared.silent("memory_unavailable")
    await asyncio.sleep(1)
    await spared.aclose()
    assert len(server.asked) == 1
