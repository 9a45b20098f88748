"""Hedging: a second model is called while the first one is silent; the one that speaks first wins.

It saves the wait for a slow first token and costs a second request, which is paid for although its
answer is dropped: off by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from contract.errors import EffectFailed, Fault
from contract.model import Chunk
from effects.circuit_breaker import Permit, Result
from effects.model.registry import ModelEntry
from effects.model.retry import blames_provider

Pieces = AsyncGenerator[list[Chunk], None]


@dataclass(slots=True, eq=False)
class ModelAttempt:
    """One attempt and its end; `left` until it has completed or failed.

    `answer` are its chunks as they come, `permit` its breaker's, `outcome` as in `AttemptLine`.
    `fault` is None where the attempt completed, or its answer was unlike the first one.
    """

    entry: ModelEntry
    permit: Permit
    answer: Pieces
    outcome: str = "left"
    result: Result = "ignored"
    fault: Fault | None = None

    def fail(self, fault: Fault) -> None:
        """Note how it failed."""
        self.fault, self.outcome = fault, fault.code
        if blames_provider(fault):
            self.result = "failure"


async def race(
    first: ModelAttempt,
    seconds: float,
    call_second: Callable[[], ModelAttempt | None],
    went_on: Callable[[ModelAttempt, EffectFailed], bool],
    drop: Callable[[ModelAttempt], None],
) -> ModelAttempt:
    """Return the attempt that speaks first; the other one is cancelled and dropped.

    The second is called when the first has been silent for so many seconds. Where one fails beside
    the other, `went_on` decides whether the other goes on alone. What is returned may have failed:
    its `answer` raises that. Cancelling drops both.
    """
    leads = {_lead(first): first}
    winner: asyncio.Task[list[Chunk]] | None = None
    try:
        done, _ = await asyncio.wait(leads, timeout=seconds)
        if not done and (second := call_second()) is not None:
            leads[_lead(second)] = second
        while winner is None:
            done, _ = await asyncio.wait(leads, return_when=asyncio.FIRST_COMPLETED)
            # At one moment: the one that speaks, and of two the one that was named.
            ahead = min(
                done, key=lambda task: (task.exception() is not None, leads[task] is not first)
            )
            error = ahead.exception()
            if len(leads) > 1 and isinstance(error, EffectFailed) and went_on(leads[ahead], error):
                del leads[ahead]
            else:
                winner = ahead
        chosen = leads.pop(winner)
        chosen.answer = _with_lead(winner, chosen.answer)
        return chosen
    finally:
        for task, attempt in leads.items():
            task.cancel()
            await asyncio.wait({task})
            await attempt.answer.aclose()
            drop(attempt)


def _lead(attempt: ModelAttempt) -> asyncio.Task[list[Chunk]]:
    return asyncio.get_running_loop().create_task(_first(attempt.answer), name="hedge")


async def _first(answer: Pieces) -> list[Chunk]:
    """Read an answer up to its first chunks; the rest of it can be read on."""
    async for chunks in answer:
        if chunks:
            return chunks
    return []


async def _with_lead(lead: asyncio.Task[list[Chunk]], answer: Pieces) -> Pieces:
    """Yield the first chunks, then the rest."""
    async with aclosing(answer):
        yield await lead
        async for chunks in answer:
            yield chunks
