"""A run's own exchange: the model, and nothing else in the world."""

from __future__ import annotations

import asyncio

import pytest

from contract import operations as ops
from contract.model import ModelCall
from contract.stores import Remember
from effects.model import Hang, ScriptedModel, says
from effects.tape import canonical, port_exchange

CALL = ModelCall(model_id="m", messages=())


async def test_it_asks_the_model_and_its_stamps_go_on() -> None:
    """What comes is on its own tape, later than what went before."""
    exchange = port_exchange(
        "model", ScriptedModel(says("Hello")), asyncio.get_running_loop().time, 7_000
    )
    entry = exchange.start(ops.MODEL_STREAM, "s", CALL, canonical(CALL))
    while entry.end == "open":
        await entry.changed.wait()
    assert "".join(chunk.text for chunk in entry.items) == "Hello"
    assert entry.at >= 7_000
    await exchange.close()


async def test_nothing_else_can_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    """A write has no adapter to go through: it ends as a fault, and no adapter was called."""
    exchange = port_exchange("model", ScriptedModel(says("")), asyncio.get_running_loop().time, 0)
    write = Remember(())
    entry = exchange.start(ops.MEMORY_WRITE, "s", write, canonical(write))
    while entry.end == "open":
        await entry.changed.wait()
    assert entry.fault is not None
    assert entry.fault.data == {"kind": "OutOfReach"}
    assert "memory.write: this run may call the model, and nothing else" in caplog.text
    await exchange.close()


async def test_hung_up_it_drops_what_it_asked_and_asks_no_more() -> None:
    """At once, and for good."""
    model = ScriptedModel([Hang()])
    exchange = port_exchange("model", model, asyncio.get_running_loop().time, 0)
    exchange.start(ops.MODEL_STREAM, "s", CALL, canonical(CALL))
    await asyncio.sleep(0)
    exchange.cancel()
    assert exchange.start(ops.MODEL_STREAM, "s", CALL, canonical(CALL)).end == "cut"
    await exchange.close()
    assert (len(model.calls), model.open) == (1, 0)
