"""What serving decides, whatever stacks do with exceptions and clients with time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from cutover import Event, Request, Stack, effect, wrap_graph
from cutover.errors import Completed, Failed, Pause
from tests.support.ask import ASK, Ask, Asked, Done, Options, Said, human_answer
from tests.support.served import ask

pytestmark = pytest.mark.virtual

Turn = Request[Ask, Options]


class Orders:
    """A world with orders, and a model that says ten words, one every 20 ms."""

    def __init__(self) -> None:
        made: list[str] = []
        self.made, self.asked = made, 0

        @effect("orders.create", writes=True)
        async def create(item: str) -> str:
            made.append(item)
            return item

        @effect("model.words")
        async def words() -> AsyncIterator[str]:
            self.asked += 1
            for number in range(10):
                await asyncio.sleep(0.02)
                yield f"{number} "

        self.create, self.words = create, words

    async def breaks_behind_tea(self, _: Turn) -> AsyncIterator[Event]:
        """Order tea, and break."""
        await self.create("tea")
        yield Said("one")
        raise ZeroDivisionError

    async def swallows_the_refusal(self, _: Turn) -> AsyncIterator[Event]:
        """Order coffee where tea was ordered, and claim that it was done."""
        yield Said("one")
        with suppress(Exception):
            await self.create("coffee")
        yield Said(" coffee")
        yield Done()


async def swallows_the_pause(_: Turn) -> AsyncIterator[Event]:
    """Ask a question, and go on without its answer."""
    yield Asked("sure?")
    with suppress(Exception):
        await human_answer("sure?")
    yield Said("sorry")
    yield Done()


async def test_a_swallowed_refusal_is_no_success() -> None:
    """No client is told of an order that the tape refused."""
    orders = Orders()
    heard = await ask(ASK, Ask("tea"), orders.breaks_behind_tea, orders.swallows_the_refusal)
    assert isinstance(heard.outcome, Failed)
    assert heard.outcome.code == "write_differs"
    assert [one["type"] for one in heard.events] == ["said", "broke"]
    assert orders.made == ["tea"]


async def test_a_swallowed_pause_is_a_pause() -> None:
    """The question is stored before it goes out, and nothing follows it."""
    heard = await ask(ASK, Ask("tea"), swallows_the_pause)
    assert isinstance(heard.outcome, Pause)
    assert heard.stored is not None
    assert [one["type"] for one in heard.events] == ["asked", "suspended"]


class Empty(TypedDict):
    """A graph's state."""

    x: int


def graph(orders: Orders) -> Stack:
    """Return a graph that breaks inside a node, in the middle of the model's answer."""

    async def node(_: Empty) -> Empty:
        async for word in orders.words():
            get_stream_writer()(word)
            if word.startswith("5"):
                raise ZeroDivisionError
        return {"x": 1}

    builder: Any = StateGraph(Empty)
    builder.add_node(node)
    builder.add_edge(START, "node")
    taped = wrap_graph(builder.compile())

    async def stack(_: Turn) -> AsyncIterator[Event]:
        async for word in taped.astream({"x": 0}, stream_mode="custom"):
            yield Said(word)
        yield Done()

    return stack


@pytest.mark.parametrize("each", [0.0, 0.03, 0.5])
async def test_a_graph_that_broke_ahead_of_a_slow_client_is_taken_over(each: float) -> None:
    """Its error waits behind its frames; the model's answer goes on for the successor meanwhile."""
    orders = Orders()

    async def by_hand(_: Turn) -> AsyncIterator[Event]:
        async for word in orders.words():
            yield Said(word)
        yield Done()

    heard = await ask(ASK, Ask("count"), graph(orders), by_hand, each=each)
    assert heard.outcome == Completed()
    assert heard.text == "".join(f"{number} " for number in range(10))
    assert orders.asked == 1
