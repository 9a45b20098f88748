"""Chores are done again and again, whatever becomes of them once."""

from __future__ import annotations

import asyncio

import pytest

from cutover.wiring.periodic import periodic

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("first", [0.0, 600.0])
async def test_a_chore_that_fails_is_done_again(
    first: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody looks after its task: it would be done no more, and nobody would know."""
    done: list[float] = []
    thrice = asyncio.Event()

    async def do() -> None:
        done.append(asyncio.get_running_loop().time())
        if len(done) == 3:
            thrice.set()
        message = "boom"
        raise ValueError(message)

    began = asyncio.get_running_loop().time()
    async with periodic("sweep", do, 600.0, at_once=not first):
        await thrice.wait()
    assert [at - began for at in done] == [first, first + 600.0, first + 1_200.0]
    assert caplog.messages == ["sweep: failed, and is tried again"] * 3
