"""Events on their way from a node to whoever reads: those that are said do not wait for him."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from contract.errors import Paused
from contract.flow import Event
from contract.flows.companion import CompanionText
from graph_impl.engine import Course, Sink, run

PIECES = [CompanionText(str(number)) for number in range(100)]
AHEAD = 32


class Nothing(TypedDict, total=False):
    """No state."""

    nothing: str


@dataclass
class Talk:
    """What the node reaches, and how far it got."""

    sink: Sink = field(default_factory=Sink)
    said: int = 0
    over: bool = False


async def _lose(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    raise asyncio.CancelledError


async def _say(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    talk = runtime.context
    for piece in PIECES:
        await talk.sink.say(piece)
        talk.said += 1
    await talk.sink.taken()
    talk.over = True
    return {"nothing": ""}


def started(talk: Talk, node: object = _say) -> AsyncGenerator[Event]:
    """Run a graph of the one node."""
    graph: Any = StateGraph(Nothing, context_schema=Talk)
    graph.add_node("say", node)
    graph.add_edge(START, "say")
    return run(graph.compile(), {"nothing": ""}, talk, talk.sink, Course(3))


async def settled() -> None:
    """Let everybody go on for as long as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_pieces_are_taken_in_one_turn_of_the_loop() -> None:
    """Those that are there when the reader comes are there without waiting."""
    async with aclosing(started(Talk())) as events:
        assert await anext(events) == PIECES[0]
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for piece in PIECES[1 : AHEAD - 1]:
            assert await anext(events) == piece
        assert turns == 0
        counting.cancel()


async def test_a_reader_who_is_slow_is_waited_for() -> None:
    """Only a few pieces wait for him, and nothing is done before he has the last."""
    talk = Talk()
    async with aclosing(started(talk)) as events:
        taken = [await anext(events)]
        while len(taken) < len(PIECES):
            await settled()
            assert talk.said <= len(taken) + AHEAD
            assert not talk.over
            taken.append(await anext(events))
        assert taken == PIECES
        await settled()
        assert not talk.over  # he may leave without having passed the last on
        assert [event async for event in events] == []
    assert talk.over


async def test_a_node_that_cancels_itself_has_not_another_name_for_it() -> None:
    """Both stacks' records of the same crash say the same."""
    with pytest.raises(asyncio.CancelledError):
        await anext(started(Talk(), _lose))


async def _pause(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    raise Paused("h")  # noqa: EM101 - an id


@pytest.mark.parametrize("node", [_pause, _lose])
async def test_what_broke_off_keeps_nothing(node: object) -> None:
    """Nor does whatever it was asked with wait for the collector, which comes after hours."""
    gc.collect()
    gc.disable()
    try:
        talk = Talk()
        gone = weakref.ref(talk)
        with pytest.raises((Paused, asyncio.CancelledError)):
            async for _ in started(talk, node):
                pass
        del talk
        await settled()
        assert gone() is None
    finally:
        gc.enable()


async def _turn_in_a_ring(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


async def test_causes_may_go_round() -> None:
    """An error that is the cause of its own cause ends the run as any other."""
    with pytest.raises(ValueError, match="first"):
        await anext(started(Talk(), _turn_in_a_ring))
