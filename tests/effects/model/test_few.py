"""A few answers at a time: who comes later waits for a turn, and gets it."""

from __future__ import annotations

import asyncio

from contract.model import ModelCall
from effects.model import Hang, LimitedModel, ScriptedModel, says

CALL = ModelCall(model_id="m", messages=())


async def text(model: LimitedModel) -> str:
    """Ask, and read to the end."""
    return "".join([chunk.text async for chunk in model.stream("s", CALL)])


async def test_it_says_what_the_other_says() -> None:
    """All of it, and what is registered too."""
    model = LimitedModel(ScriptedModel(says("Hello")), 1)
    assert await text(model) == "Hello"
    assert (await model.lookup("s", "m")).model_id == "m"


async def test_one_that_hangs_holds_up_the_others_until_it_is_dropped() -> None:
    """No call is made beyond the number; a cancelled answer passes its turn on."""
    asked = ScriptedModel([Hang()])
    model = LimitedModel(asked, 2)
    calls = [asyncio.create_task(text(model)) for _ in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(asked.calls), asked.open) == (2, 2)
    calls[0].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(asked.calls), asked.cancelled, asked.open) == (3, 1, 2)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert asked.open == 0
