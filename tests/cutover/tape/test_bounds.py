"""An exchange that outgrows its tape is served on, without capture, shadow and takeover."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from cutover import Exchange, Run, effect
from cutover.errors import Fenced, TapeOverflowed
from cutover.tape import tape_record
from tests.support.tapes import code, ended, play, start, turn, values, within

PIECE = "x" * 100


@effect("bulk")
async def bulk(count: int) -> AsyncIterator[str]:
    """Yield pieces of 102 bytes."""
    for _ in range(count):
        await asyncio.sleep(0)
        yield PIECE


async def _drain(count: int = 50) -> int:
    return len([piece async for piece in bulk(count) if piece == PIECE])


async def test_an_exchange_over_its_limit_is_served_to_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run that is served gets each item; what it has read is dropped from memory."""
    with caplog.at_level(logging.WARNING):
        async with Exchange(tape_bytes=1000) as exchange:
            run = Run(exchange, "legacy")
            assert await within(run, _drain) == 50
            assert await within(run, lambda: _drain(51)) == 51
            assert exchange.overflowed
            assert sum(len(item) for entry in exchange.entries for item in values(entry)) < 1500
    assert [record.getMessage().count("1000 bytes") for record in caplog.records] == [1]


async def test_nothing_is_recorded_or_paused_of_a_tape_over_its_limit() -> None:
    """A tape with holes is stored nowhere."""
    async with Exchange(tape_bytes=100) as exchange:
        await within(Run(exchange, "legacy"), _drain)
        with pytest.raises(TapeOverflowed):
            tape_record(exchange)


async def test_a_play_ends_when_the_tape_outgrows_its_limit() -> None:
    """Also one that waits for a call, or stands in the middle of one."""
    stuck = asyncio.Event()
    async with Exchange(tape_bytes=1000) as exchange:
        waiting, reading = play(exchange), play(exchange)

        async def slow() -> None:
            async for _ in bulk(50):
                await stuck.wait()

        tasks = [start(waiting, lambda: _drain(7)), start(reading, slow)]
        assert await within(Run(exchange, "legacy"), _drain) == 50
        await turn()
        stuck.set()
        assert [type(await ended(task)) for task in tasks] == [TapeOverflowed] * 2
        assert [code(run) for run in (waiting, reading)] == ["tape_overflowed"] * 2
        late = play(exchange)
        with pytest.raises(TapeOverflowed):
            await within(late, _drain)


async def test_a_successor_never_gets_half_of_a_call() -> None:
    """Items that were dropped end its run; a call that was not read before is whole."""
    async with Exchange(tape_bytes=1000) as exchange:
        first = Run(exchange, "legacy")
        await within(first, _drain)
        first.fence()
        second = Run(exchange, "graph", "fallback")
        assert await within(second, lambda: _drain(7)) == 7
        with pytest.raises(TapeOverflowed):
            await within(second, _drain)
        assert code(second) == "tape_overflowed"
        with pytest.raises(Fenced):
            await within(second, lambda: _drain(8))


async def test_a_finished_entry_lets_the_loop_turn_while_it_is_read() -> None:
    """A long entry that is read at once starves no other task."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: _drain(160))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        await within(play(exchange), lambda: _drain(160))
        counting.cancel()
        await ended(counting)
    assert turns >= 5
