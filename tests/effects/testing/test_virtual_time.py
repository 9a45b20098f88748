"""The loop that jumps instead of waiting."""

import asyncio
import selectors
import socket
import threading

import pytest

from effects.testing import LoopStuck, VirtualLoop

HOUR = 3600.0


@pytest.mark.virtual
async def test_an_hour_passes_at_once() -> None:
    """A sleep moves the clock by its length, whatever the wall clock says."""
    before = asyncio.get_running_loop().time()
    await asyncio.sleep(HOUR)
    assert asyncio.get_running_loop().time() - before == HOUR


@pytest.mark.virtual
async def test_timers_fire_in_their_order() -> None:
    """Sleepers started together wake by length, not by start."""
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    await asyncio.gather(*(sleeper(seconds) for seconds in (3.0, 1.0, 2.0)))
    assert woken == [1.0, 2.0, 3.0]


@pytest.mark.virtual
async def test_ready_work_goes_before_the_clock() -> None:
    """A time limit does not fire while there is anything to run."""
    async with asyncio.timeout(1.0):
        for _ in range(1000):
            await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() == 0.0


@pytest.mark.virtual
async def test_a_time_limit_fires() -> None:
    """Waiting for what never comes ends at the limit."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30.0):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 30.0


@pytest.mark.virtual
@pytest.mark.sockets
async def test_bytes_on_a_socket_go_before_the_clock() -> None:
    """What has arrived is read before a time limit is believed."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    with ours, theirs:
        theirs.sendall(b"x")
        async with asyncio.timeout(1.0):
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"x"


@pytest.mark.virtual
@pytest.mark.sockets
async def test_bytes_that_arrive_a_little_later_go_before_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy kernel delivers on loopback when the loop has looked already."""
    select = selectors.DefaultSelector.select
    monkeypatch.setattr(
        selectors.DefaultSelector,
        "select",
        lambda selector, seconds=None: select(selector, seconds) if seconds else [],
    )
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.add_reader(ours, there.set)
        theirs.sendall(b"x")
        async with asyncio.timeout(1.0):
            await there.wait()
        loop.remove_reader(ours)
    assert loop.time() == 0.0


@pytest.mark.virtual
async def test_a_thread_holds_the_clock() -> None:
    """Work in a thread takes no virtual time, so a limit over it does not fire."""
    release = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(0.001):
        assert await work
    assert asyncio.get_running_loop().time() == 0.0


def test_a_deadlock_is_named() -> None:
    """With no timer and nothing to wake the loop, the wait ends with an error that says so."""
    loop = VirtualLoop(guard_seconds=0.01)
    forever = loop.create_task(asyncio.Event().wait())
    try:
        with pytest.raises(LoopStuck, match=r"0\.01 real seconds"):
            loop.run_until_complete(forever)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(forever)
    finally:
        loop.close()


async def test_other_tests_have_the_loop_of_every_day() -> None:
    """Without the marker nothing is virtual."""
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.mark.usefixtures("shared_data")
def test_shared_data_is_there_or_skipped() -> None:
    """The fixture skips with a reason where the folder is absent."""
