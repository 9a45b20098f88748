"""Bodies of requests, and the room there is for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from router.config.schema import LimitSettings, Settings
from router.http.connection import SMALL_BYTES, BodyMemory
from router.problems import Problem

LIMITS = LimitSettings(body_bytes=4 * SMALL_BYTES, body_seconds=30.0)
SETTINGS = Settings(limits=LIMITS)
MOST = 3 * SMALL_BYTES


def coming(*pieces: bytes, whole: bool = True) -> Callable[[], Awaitable[Any]]:
    """Return a body piece by piece; what is not whole is waited for in vain."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left) or not whole}

    return receive


def declaring(size: int) -> dict[str, Any]:
    """Return a scope that says how long the body is."""
    return {"headers": [(b"content-length", str(size).encode())]}


async def problem_of(memory: BodyMemory, pieces: Sequence[bytes], declared: int = 0) -> str:
    """Return the code a body is refused with."""
    with pytest.raises(Problem) as refused:
        await memory.read(declaring(declared), coming(*pieces), MOST)
    return refused.value.code


async def test_a_body_is_put_together() -> None:
    """Small or large; afterwards it takes no room."""
    memory = BodyMemory(lambda: SETTINGS)
    for pieces in ((b"",), (b"a", b"b"), (b"x" * SMALL_BYTES, b"y" * SMALL_BYTES, b"z")):
        body = await memory.read(declaring(0), coming(*pieces), MOST)
        assert body == b"".join(pieces)
        memory.release(body)
    assert memory.reserved == 0


async def test_zeros_before_a_length_mean_nothing() -> None:
    """However many there are: Python reads some thousand digits at once, and no more."""
    padded = {"headers": [(b"content-length", b"0" * 5_000 + b"1")]}
    assert await BodyMemory(lambda: SETTINGS).read(padded, coming(b"x"), MOST) == b"x"


async def test_one_is_not_too_large_and_all_are_not() -> None:
    """A body that finds no memory reserves none; small ones need none."""
    memory, large = BodyMemory(lambda: SETTINGS), [b"x" * SMALL_BYTES] * 3
    assert await problem_of(memory, [*large, b"x"]) == "body_too_large"
    assert await problem_of(memory, [], declared=MOST + 1) == "body_too_large"
    body = await memory.read(declaring(0), coming(*large), MOST)
    assert memory.reserved == MOST
    assert await problem_of(memory, large) == "overloaded"
    assert await memory.read(declaring(0), coming(b"x" * SMALL_BYTES), MOST)
    assert memory.reserved == MOST
    memory.release(body)
    assert await memory.read(declaring(0), coming(*large), MOST)


@pytest.mark.virtual
async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """What has come of it takes no room any more."""
    shed: list[Problem] = []

    def count(problem: Problem) -> Problem:
        shed.append(problem)
        return problem

    memory, loop = BodyMemory(lambda: SETTINGS, count), asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Problem) as refused:
        await memory.read(declaring(0), coming(b"x" * SMALL_BYTES, b"x", whole=False), MOST)
    assert (refused.value.status, refused.value.code) == (408, "slow_body")
    assert shed == [refused.value]
    assert loop.time() - began == pytest.approx(LIMITS.body_seconds)
    assert memory.reserved == 0
