"""The driver of the engine: events on their way, interrupts, and what a run leaves behind."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from contract.errors import EffectFailed, Fault, Paused
from contract.flow import Event
from contract.flows.companion import CompanionText
from contract.model import ModelCall, ModelInfo
from effects.model.fake import says
from effects.testing import World
from graph_impl.engine import HUMAN, Node, RunContext, add_nodes, ask_human, run
from tests.support.clocks import counted_turns
from tests.support.collector import without_collector

PIECES = [CompanionText(str(number)) for number in range(100)]
AHEAD = 32


class Nothing(TypedDict, total=False):
    """No state."""

    nothing: str


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Talk(RunContext):
    """What the node reaches; `progress` counts pieces, `questions` are those asked."""

    effects: Any = field(default_factory=lambda: World().effects)
    progress: list[int] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)
    questions: list[Any] = field(default_factory=list)
    answers: dict[Any, Any] = field(default_factory=dict)

    async def ask(self, question: Any) -> Any:
        """Answer, or raise."""
        self.questions.append(question)
        answer = self.answers[question["q"]]
        return answer() if callable(answer) else answer


async def _lose(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    raise asyncio.CancelledError


async def _say(_: Nothing, runtime: Runtime[Talk]) -> Nothing:
    talk = runtime.context
    for piece in PIECES:
        await talk.sink.push(piece)
        talk.progress.append(1)
    await talk.sink.drained()
    talk.done.append(True)
    return {"nothing": ""}


def started(talk: Talk, node: Node = _say, name: str = "say") -> AsyncGenerator[Event]:
    """Run a graph of the one node."""
    graph: Any = StateGraph(Nothing, context_schema=Talk)
    add_nodes(graph, **{name: node})
    graph.add_edge(START, name)
    return run(graph.compile(), {"nothing": ""}, talk, steps=3)


async def settled() -> None:
    """Let all tasks go on for as long as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_pieces_are_taken_in_one_turn_of_the_loop() -> None:
    """Those that are there when the reader comes are there without waiting."""
    async with aclosing(started(Talk())) as events:
        assert await anext(events) == PIECES[0]
        async with counted_turns() as turns:
            for piece in PIECES[1 : AHEAD - 1]:
                assert await anext(events) == piece
            assert turns.count == 0


async def test_a_slow_reader_is_waited_for() -> None:
    """Only a few pieces wait for it, and nothing is done before it has the last."""
    talk = Talk()
    async with aclosing(started(talk)) as events:
        taken = [await anext(events)]
        while len(taken) < len(PIECES):
            await settled()
            assert len(talk.progress) <= len(taken) + AHEAD
            assert not talk.done
            taken.append(await anext(events))
        assert taken == PIECES
        await settled()
        assert not talk.done  # the reader may leave without having passed the last on
        assert [event async for event in events] == []
    assert talk.done


async def test_a_node_that_cancels_itself_raises_no_other_error() -> None:
    """Both stacks' records of the same crash name the same error."""
    with pytest.raises(asyncio.CancelledError):
        await anext(started(Talk(), _lose))


def _paused() -> None:
    raise Paused("h")


async def _pause(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    raise Paused("h")


async def _wait(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    ask_human({"q": 1})
    return {}


@pytest.mark.parametrize(("name", "node"), [("say", _pause), ("say", _lose), (HUMAN, _wait)])
async def test_a_run_that_broke_off_holds_nothing(name: str, node: Node) -> None:
    """Nor does its request wait for the collector, which comes after hours."""
    with without_collector():
        talk = Talk(answers={1: _paused})
        gone = weakref.ref(talk)
        with pytest.raises((Paused, asyncio.CancelledError)):
            async for _ in started(talk, node, name):
                pass
        del talk
        await settled()
        assert gone() is None


async def _raise_a_ring(state: Nothing, runtime: Runtime[Talk]) -> Nothing:  # noqa: ARG001 - as the engine calls it
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


async def test_causes_may_form_a_ring() -> None:
    """An error that is the cause of its own cause ends the run as any other."""
    with pytest.raises(ValueError, match="first"):
        await anext(started(Talk(), _raise_a_ring))


async def _ask_twice(_: Nothing, runtime: Runtime[Talk]) -> Nothing:
    answers = [ask_human({"q": 1}), ask_human({"q": 2})]
    for answer in answers:
        await runtime.context.sink.send(CompanionText(str(answer)))
    return {}


@pytest.mark.parametrize("answer", [None, {}, [], 0, "", False, {"a": 1}])
async def test_any_answer_resumes_the_node_that_asked(answer: Any) -> None:
    """Two questions in a row, and answers the engine would take for none or for a map of them."""
    talk = Talk(answers={1: answer, 2: "second"})
    events = [event async for event in started(talk, _ask_twice, HUMAN)]
    assert events == [CompanionText(str(answer)), CompanionText("second")]
    assert talk.questions == [{"q": 1}, {"q": 2}]


async def _ask_between(_: Nothing, runtime: Runtime[Talk]) -> Nothing:
    sink, effects = runtime.context.sink, runtime.context.effects
    call = ModelCall(model_id="m", messages=())
    for number in (1, 2):
        await sink.send(CompanionText(await effects.ids.new("same")))
        async for chunk in effects.model.stream("same", call):
            await sink.push(CompanionText(chunk.text))
        with suppress(EffectFailed):
            await effects.model.lookup("same", "no-such-model")
        await sink.send(CompanionText(str(ask_human({"q": number}))))
    return {}


async def test_a_node_executed_again_repeats_no_call_and_no_event() -> None:
    """Its calls are counted from the first again: equal calls have their own answers."""
    world = World(says("text"), models=(ModelInfo(model_id="m", model="m"),))
    talk = Talk(effects=world.effects, answers={1: "first", 2: "second"})
    events = [event async for event in started(talk, _ask_between, HUMAN)]
    texts = [event.content for event in events if isinstance(event, CompanionText)]
    assert [text for text in texts if text] == ["id-1", "text", "first", "id-2", "text", "second"]
    assert Counter(label for label, _ in world.made) == {
        "ids.new": 2,
        "model.stream": 2,
        "model.lookup": 2,
    }


async def test_a_question_the_port_failed_at_raises_its_fault_in_the_node() -> None:
    """There the graph's own handling of failures applies."""
    fault = Fault("store_unavailable", retryable=True)

    def fail() -> None:
        raise EffectFailed(fault)

    with pytest.raises(EffectFailed) as raised:
        await anext(started(Talk(answers={1: fail}), _wait, HUMAN))
    assert raised.value.fault == fault
