"""`wrap_graph`: a compiled LangGraph of others as a flow, served, shadowed, taken over, paused."""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx2
import msgspec
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from pydantic import SecretStr

from contract.flow import Flow
from contract.flows import SPECS
from contract.flows.declared import DeclaredFlow, DeclaredPause, declared_spec
from contract.wire import Dialect, EventNames
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Replayed, Replayer
from cutover.replay.sides import sides_of
from cutover.wiring.stacks import load_stack
from cutover_client import CutoverTransport, GatewayError, effect, wrap_graph
from effects.testing import World
from router.gateway.in_process import client_bound
from router.serving.stack import LocalStack
from router.stack import STACKS, StackName
from tests.support.loopback_provider import KEY, Wire, delta, finish, serving
from tests.support.pausing_flow import QUESTION, Desk, Reply

DIALECT = Dialect(
    name="support",
    event=EventNames(path="type"),
    text={"text": "text"},
    terminal=("done",),
    ids={"question": "id"},
    failure=('{"type":"error","code":"{code}"}', '{"type":"done","status":"failed"}'),
)
DECLARED = DeclaredFlow(
    path="/support",
    dialect=DIALECT,
    route_keys={"session_id": "chat"},
    pause=DeclaredPause(path="/support/go-on", frames=('{"type":"done","status":"waiting"}',)),
)
SPEC = declared_spec("support", DECLARED)
BODY = {"chat": "c1", "message": "tea"}
Json = dict[str, Any]


class State(TypedDict, total=False):
    """The state of the graphs of these tests."""

    message: str
    done: Annotated[list[str], operator.add]


@dataclass
class Shop:
    """The functions of a service, and what they really did."""

    done: list[str] = field(default_factory=list)
    again: bool = False

    @effect("book")
    async def book(self, item: str) -> str:
        """Book something."""
        self.done.append(f"book {item}")
        return f"booked {item}"

    @effect("pay")
    def pay(self, item: str) -> str:
        """Pay for it; blocks."""
        self.done.append(f"pay {item}")
        return f"paid {item}"

    @effect("answer", read_only=True)
    async def answer(self, message: str) -> AsyncIterator[str]:
        """Answer as a model does."""
        self.done.append("answer")
        for word in ("You ", "get ", message, "."):
            yield word


def word(text: str) -> Json:
    """Return an event with a text."""
    return {"type": "text", "text": text}


def asked(number: str, value: Any) -> Json:
    """Return the event of a question."""
    return {"type": "question", "id": number, "hitl_id": number, "value": value}


def ended(_: Any) -> Json:
    """Return the last event."""
    return {"type": "done", "status": "completed"}


def flow_of(graph: Any, **how: Any) -> Flow:
    """Wrap a graph as these tests do."""
    options = {"text": word, "question": asked, "end": ended, **how}
    return wrap_graph(graph, input=lambda body: {"message": body["message"]}, **options)


def graph_of(*steps: Any, saver: Any = None) -> Any:
    """Compile steps that follow each other."""
    graph = StateGraph(State)
    graph.add_sequence([*steps])
    graph.add_edge(START, steps[0].__name__)
    return graph.compile(checkpointer=saver)


def desk_of(legacy: Flow, graph: Flow | None = None, **how: Any) -> Desk:
    """Make a router with a flow on both stacks, whose code uses the client."""
    desk = Desk(World(), spec=SPEC, **how)
    restart(desk, legacy, graph)
    return desk


def restart(desk: Desk, legacy: Flow, graph: Flow | None = None) -> None:
    """Start a router anew over the same stores."""
    flows: Mapping[Any, Flow] = {"legacy": legacy, "graph": graph or legacy}
    stacks = {
        name: LocalStack(name, {"support": flow}, name, bind=client_bound)
        for name, flow in flows.items()
    }
    desk.start(stacks=stacks)


async def go_on(desk: Desk, number: str, answer: Any = "yes") -> Reply:
    """Answer a question, and go on."""
    pausing = SPEC.pausing
    assert pausing is not None
    assert pausing.resume.answer is not None
    given = pausing.resume.answer({"id": number, "answer": answer})
    await desk.router.respond(SPEC, number, given)
    return await desk.go_on(number)


def texts(reply: Reply) -> list[str]:
    """Return texts, types of other events, and how it ended."""
    return [one.get("text") or one.get("status") or one["type"] for one in reply.events]


def answering(shop: Shop) -> Any:
    """Return a node that answers word by word, each an event of its own."""

    async def answer(state: State) -> State:
        writer = get_stream_writer()
        async for text in shop.answer(state["message"]):
            writer(word(text))
        return {"done": ["answered"]}

    return answer


ANSWER = ["You ", "get ", "tea", ".", "completed"]


def run_of(desk: Desk, role: str) -> Any:
    """Return the record of the one run of a role."""
    (run,) = [one for one in desk.captured.runs if one.role == role]
    return run


async def test_custom_events_are_frames_and_end_makes_the_last() -> None:
    """What a node hands to the stream writer is an event as it is."""
    shop = Shop()
    reply = await desk_of(flow_of(graph_of(answering(shop)))).take(BODY)
    assert texts(reply) == ANSWER
    assert reply.frames[0] == 'data: {"type":"text","text":"You "}\n\n'
    assert shop.done == ["answer"]


async def test_texts_of_models_are_events_of_the_named_nodes() -> None:
    """Of a chat model in a node, streamed or not; those of other nodes are not shown."""

    async def talk(state: State) -> State:
        model = GenericFakeChatModel(messages=iter([AIMessage(f"You get {state['message']}")]))
        await model.ainvoke([HumanMessage("?")])
        return {}

    async def think(_: State) -> State:
        await GenericFakeChatModel(messages=iter([AIMessage("no text")])).ainvoke("?")
        return {}

    reply = await desk_of(flow_of(graph_of(think, talk), nodes=("talk",))).take(BODY)
    assert "".join(texts(reply)[:-1]) == "You get tea"


async def test_a_shadow_plays_what_the_served_graph_has_called() -> None:
    """Tools are counted once, sync nodes in threads included; the ledger says equal."""
    shop = Shop()

    async def booking(state: State) -> State:
        return {"done": [await shop.book(state["message"])]}

    def paying(state: State) -> State:
        get_stream_writer()({"type": "paid", "what": shop.pay(state["message"])})
        return {}

    saver = InMemorySaver()
    flow = flow_of(graph_of(booking, paying, answering(shop), saver=saver))
    desk = desk_of(flow)
    desk.shadow = Decimal(100)
    reply = await desk.take(BODY)
    assert texts(reply) == ["paid", *ANSWER]
    await desk.router.aclose(10.0)
    assert sorted(shop.done) == ["answer", "book tea", "pay tea"]
    assert [line.state for line in desk.router.ledger.counts] == ["compared"]
    assert [line.reason for line in desk.router.ledger.counts] == ["equal"]
    assert {play.how for play in run_of(desk, "shadow").plays} == {"exact"}
    assert len(list(saver.list({"configurable": {"thread_id": "c1"}}))) == 1


async def hand_written(shop: Shop, body: Any) -> AsyncIterator[Any]:
    """Answer without a graph, with the words cut otherwise."""
    whole = "".join([text async for text in shop.answer(body["message"])])
    for at in range(0, len(whole), 3):
        yield word(whole[at : at + 3])
    yield ended(None)


def by_hand(shop: Shop) -> Flow:
    """Return the flow of another stack."""

    def flow(request: Any, _: Any) -> Any:
        return hand_written(shop, request.body)

    return flow


async def test_a_stack_without_such_a_thread_is_equal() -> None:
    """The graph reads its thread itself in the shadow, writes none, and that is no difference."""
    shop, saver = Shop(), InMemorySaver()

    async def flow(request: Any, _: Any) -> AsyncIterator[Any]:
        async for text in shop.answer(request.body["message"]):
            yield word(text)
        yield ended(None)

    names: tuple[StackName, ...] = ("legacy", "graph")
    for first in names:
        desk = desk_of(flow, flow_of(graph_of(answering(shop), saver=saver)))
        desk.assigned, desk.shadow = first, Decimal(100)
        await desk.take(BODY)
        await desk.router.aclose(10.0)
        assert [line.reason for line in desk.router.ledger.counts] == ["equal"]
    assert shop.done == ["answer", "answer"]
    assert len(list(saver.list({"configurable": {"thread_id": "c1"}}))) == 1


def breaking(flow: Flow, after: int) -> Flow:
    """Return a flow that crashes after so many events."""

    async def broken(request: Any, effects: Any) -> AsyncIterator[Any]:
        events: Any = flow(request, effects)
        try:
            for _ in range(after):
                yield await anext(events)
        finally:
            await events.aclose()
        secret = "a secret"
        raise RuntimeError(secret)

    return broken


@pytest.mark.parametrize("first", ["legacy", "graph"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
async def test_the_other_stack_takes_over_by_text(first: Any, after: int) -> None:
    """Of a wrapped graph, and a wrapped graph of another: one answer, asked for once."""
    shop = Shop()
    flows = {"legacy": by_hand(shop), "graph": flow_of(graph_of(answering(shop)))}
    flows[first] = breaking(flows[first], after)
    desk = desk_of(flows["legacy"], flows["graph"])
    desk.assigned = first
    reply = await desk.take(BODY)
    assert "".join(texts(reply)[:-1]) == "You get tea."
    assert texts(reply)[-1] == "completed"
    assert shop.done == ["answer"]
    assert run_of(desk, "fallback").outcome == "completed"


async def test_an_error_in_a_node_is_a_fault_of_the_stack_and_its_text_is_not_sent() -> None:
    """Before the first event the other stack serves; after it there are failure frames."""
    shop = Shop()

    async def fail(_: State) -> State:
        secret = "a secret"
        raise RuntimeError(secret)

    desk = desk_of(by_hand(shop), flow_of(graph_of(fail)))
    desk.assigned = "graph"
    assert "".join(texts(await desk.take(BODY))[:-1]) == "You get tea."
    error = run_of(desk, "serving").error
    assert (error.code, error.kind, "secret" in str(error)) == ("crash", "RuntimeError", False)
    both = flow_of(graph_of(answering(shop), fail))
    reply = await desk_of(both, both).take(BODY)
    assert texts(reply)[-2:] == ["error", "failed"]
    assert "secret" not in "".join(reply.frames)


async def test_a_client_that_leaves_cancels_the_nodes() -> None:
    """The node is cancelled, and has ended, before the exchange is recorded."""
    seen: list[str] = []

    async def hang(_: State) -> State:
        get_stream_writer()(word("begun"))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("cancelled")
        return {}

    saver = InMemorySaver()
    desk = desk_of(flow_of(graph_of(hang, saver=saver)))
    reply = await desk.take(BODY, leaves=1)
    assert (texts(reply), seen) == (["begun"], ["cancelled"])
    assert run_of(desk, "serving").outcome == "cancelled"
    assert not list(saver.list(None))
    assert not [one for one in asyncio.all_tasks() if one.get_name() == "graph run"]


def buying(shop: Shop) -> list[Any]:
    """Return nodes that book, ask, and pay; the question stands behind a call and an event."""

    async def book(state: State) -> State:
        get_stream_writer()(word("Booked. "))
        return {"done": [await shop.book(state["message"])]}

    async def ask(state: State) -> State:
        writer = get_stream_writer()
        writer(word("One moment. "))
        found = await shop.book(f"table for {state['message']}")
        answer = interrupt({"pay for": found})
        writer(word(f"You said {answer}. "))
        return {"done": [await asyncio.to_thread(shop.pay, state["message"])]}

    async def close(state: State) -> State:
        get_stream_writer()(word(" ".join(state["done"])))
        return {}

    return [book, ask, close]


PAUSED = ["Booked. ", "One moment. ", "question", "waiting"]
WENT_ON = ["You said yes. ", "booked tea paid tea", "completed"]
CALLS = ["book tea", "book table for tea", "pay tea"]


@pytest.mark.parametrize("anew", [False, True])
async def test_an_interrupt_is_a_pause_and_what_stood_before_it_is_played(*, anew: bool) -> None:
    """In one process, and in one that knows nothing but the stored tape: each call once."""
    shop, saver = Shop(), InMemorySaver()
    desk = desk_of(flow_of(graph_of(*buying(shop), saver=saver)))
    paused = await desk.take(BODY)
    assert texts(paused) == PAUSED
    assert paused.events[2]["value"] == {"pay for": "booked table for tea"}
    assert not list(saver.list(None))
    if anew:
        saver = InMemorySaver()
        restart(desk, flow_of(graph_of(*buying(shop), saver=saver)))
    rest = await go_on(desk, paused.hitl_id)
    assert (texts(rest), shop.done) == (WENT_ON, CALLS)
    stored = await saver.aget_tuple({"configurable": {"thread_id": "c1"}})
    assert stored is not None
    assert stored.checkpoint["channel_values"]["done"] == ["booked tea", "paid tea"]


async def test_a_shadow_pauses_and_goes_on_as_the_served_graph_does() -> None:
    """Both parts of the exchange are equal, and the shadow calls nothing."""
    shop = Shop()
    desk = desk_of(flow_of(graph_of(*buying(shop))))
    desk.shadow = Decimal(100)
    paused = await desk.take(BODY)
    await go_on(desk, paused.hitl_id)
    await desk.router.aclose(10.0)
    assert shop.done == CALLS
    assert {line.reason: n for line, n in desk.router.ledger.counts.items()} == {"equal": 2}


@pytest.mark.parametrize("answer", [None, False, 0, "", {}, [], {"a": [1]}])
async def test_an_answer_is_any_json(answer: Any) -> None:
    """The interrupt returns it as it was posted."""

    async def ask(_: State) -> State:
        got = interrupt("?")
        get_stream_writer()({"type": "got", "got": got})
        return {}

    desk = desk_of(flow_of(graph_of(ask)))
    paused = await desk.take(BODY)
    rest = await go_on(desk, paused.hitl_id, answer)
    assert rest.events[0] == {"type": "got", "got": answer}


@pytest.mark.virtual
async def test_changed_code_is_refused_before_it_calls_anything() -> None:
    """A deploy in between must not book again: `resume_mismatch`, and the pause is given back."""
    shop = Shop()
    flow = flow_of(graph_of(*buying(shop)))
    desk = desk_of(flow)
    paused = await desk.take(BODY)

    async def book(state: State) -> State:
        with suppress(GatewayError):
            await shop.book(f"two {state['message']}")
        return {}

    restart(desk, flow_of(graph_of(book, *buying(shop)[1:])))
    rest = await go_on(desk, paused.hitl_id)
    assert (rest.status, rest.code) == (409, "resume_mismatch")
    assert desk.captured.batches[-1][0].error is not None
    assert desk.captured.batches[-1][0].error.code == "resume_mismatch"
    assert shop.done == CALLS[:2]
    restart(desk, flow)
    assert texts(await desk.go_on(paused.hitl_id)) == WENT_ON


@pytest.mark.virtual
async def test_a_node_that_does_otherwise_when_it_is_executed_again_is_refused() -> None:
    """Its first call has other arguments each time: it is not made a second time."""
    shop, numbers = Shop(), iter(range(9))

    async def ask(_: State) -> State:
        await shop.book(f"number {next(numbers)}")
        interrupt("?")
        return {}

    desk = desk_of(flow_of(graph_of(ask)))
    paused = await desk.take(BODY)
    rest = await go_on(desk, paused.hitl_id)
    assert (rest.status, rest.code) == (409, "resume_mismatch")
    assert desk.captured.batches[-1][0].error is not None
    assert desk.captured.batches[-1][0].error.code == "resume_mismatch"
    assert shop.done == ["book number 0"]


def side_by_side(*calls: Callable[[], Awaitable[str]]) -> tuple[Any, Any]:
    """Return a node that makes calls side by side, and one that says what came of them."""

    async def make(_: State) -> State:
        return {"done": list(await asyncio.gather(*(call() for call in calls)))}

    async def tell(state: State) -> State:
        get_stream_writer()(word(", ".join(state["done"])))
        return {}

    return make, tell


@pytest.mark.virtual
async def test_what_an_interrupted_node_left_running_calls_nothing_in_the_next_execution() -> None:
    """Its call would be made a second time, beside that of the execution that counts."""
    shop, executions = Shop(), list[int]()
    booked, woken = asyncio.Event(), asyncio.Event()

    async def beside() -> str:
        executions.append(len(executions))
        if executions[-1] == 1:
            await woken.wait()  # until the node is executed again
        if executions[-1] == 2:
            woken.set()
            await asyncio.sleep(0.05)
        done = await shop.book("beside")
        booked.set()
        return done

    async def asking() -> str:
        if executions[-1] == 0:
            await booked.wait()
        return str(interrupt("?"))

    desk = desk_of(flow_of(graph_of(*side_by_side(beside, asking))))
    paused = await desk.take(BODY)
    rest = await go_on(desk, paused.hitl_id)
    assert texts(rest) == ["booked beside, yes", "completed"]
    assert shop.done == ["book beside"]
    await asyncio.gather(*others(), return_exceptions=True)


@pytest.mark.slow
async def test_a_call_of_a_thread_that_was_not_made_before_is_refused() -> None:
    """Whatever the node makes of the error: it catches it, and its answer is not sent."""
    shop, numbers = Shop(), iter(range(9))

    def ask(_: State) -> State:
        with suppress(GatewayError):
            shop.pay(f"number {next(numbers)}")
        get_stream_writer()(word(interrupt("?")))
        return {}

    desk = desk_of(flow_of(graph_of(ask)))
    paused = await desk.take(BODY)
    rest = await go_on(desk, paused.hitl_id)
    assert (rest.status, rest.code) == (409, "resume_mismatch")
    assert shop.done == ["pay number 0"]


async def test_a_call_that_a_node_leaves_out_the_second_time_is_no_fault() -> None:
    """It guards itself against being executed again, and goes on behind its interrupt."""
    shop, sent = Shop(), list[str]()

    async def ask(_: State) -> State:
        if not sent:
            sent.append(await shop.book("tea"))
        answer = interrupt("?")
        get_stream_writer()(word(await shop.book(answer)))
        return {}

    desk = desk_of(flow_of(graph_of(ask)))
    paused = await desk.take(BODY)
    sent.clear()
    restart(desk, flow_of(graph_of(ask)))
    rest = await go_on(desk, paused.hitl_id, "cake")
    assert texts(rest) == ["booked cake", "completed"]
    assert shop.done == ["book tea", "book cake"]


async def test_two_questions_of_a_node_pause_twice() -> None:
    """Each answer goes to its question; calls between them are made once."""
    shop = Shop()

    async def ask(_: State) -> State:
        writer = get_stream_writer()
        first = interrupt("first?")
        writer(word(await shop.book(first)))
        second = interrupt("second?")
        writer(word(await shop.book(second)))
        return {}

    desk = desk_of(flow_of(graph_of(ask)))
    one = await desk.take(BODY)
    two = await go_on(desk, one.hitl_id, "tea")
    assert texts(two) == ["booked tea", "question", "waiting"]
    last = await go_on(desk, two.hitl_id, "cake")
    assert texts(last) == ["booked cake", "completed"]
    assert shop.done == ["book tea", "book cake"]


async def test_parallel_nodes_and_a_subgraph_ask_and_call_once() -> None:
    """Two of them interrupt, one with a call before it below a subgraph; a third one is done."""
    shop = Shop()

    async def plain(_: State) -> State:
        get_stream_writer()(word("plain "))
        return {"done": [await shop.book("plain")]}

    async def inner(_: State) -> State:
        get_stream_writer()(word("inner "))
        return {"done": [await shop.book("inner")]}

    def below(_: State) -> State:
        done = shop.pay("below")
        get_stream_writer()(word(f"{interrupt('b?')} "))
        return {"done": [done]}

    async def beside(_: State) -> State:
        done = await shop.book("beside")
        get_stream_writer()(word(f"{interrupt('a?')} "))
        return {"done": [done]}

    async def end(state: State) -> State:
        get_stream_writer()(word(",".join(sorted(state["done"]))))
        return {}

    sub = graph_of(inner, below)
    graph = StateGraph(State)
    for name, node in (("plain", plain), ("beside", beside), ("sub", sub), ("end", end)):
        graph.add_node(name, node)
    for name in ("plain", "beside", "sub"):
        graph.add_edge(START, name)
    graph.add_edge(["plain", "beside", "sub"], "end")
    desk = desk_of(flow_of(graph.compile()))
    one = await desk.take(BODY)
    assert sorted(texts(one)[:2]) == ["inner ", "plain "]
    two = await go_on(desk, one.hitl_id, "A")
    assert texts(two) == ["question", "waiting"]
    assert [one.events[-2]["value"], two.events[0]["value"]] == ["a?", "b?"]
    last = await go_on(desk, two.hitl_id, "B")
    assert sorted(texts(last)[:2]) == ["A ", "B "]
    assert texts(last)[2:] == [
        "booked beside,booked inner,booked plain,paid below",
        "completed",
    ]
    done = ["book beside", "book inner", "book plain", "pay below"]
    assert sorted(shop.done) == done


async def test_tools_of_a_tool_node_that_ask_are_called_once() -> None:
    """With the model's calls, as `ToolNode` makes them: one asks, the other one does not wait."""
    shop = Shop()

    @tool
    async def order(item: str) -> str:
        """Order something, once somebody agrees."""
        number = await shop.book(item)
        return f"{number}: {interrupt(f'order {item}?')}"

    @tool
    def bill(item: str) -> str:
        """Pay for something."""
        return shop.pay(item)

    async def model(state: MessagesState) -> Any:
        if isinstance(state["messages"][-1], HumanMessage):
            calls = [
                ToolCall(name="order", args={"item": "tea"}, id="1"),
                ToolCall(name="bill", args={"item": "tea"}, id="2"),
            ]
            return {"messages": [AIMessage("", tool_calls=calls)]}
        last = [str(one.content) for one in state["messages"][-2:]]
        return {"messages": [AIMessage("; ".join(last))]}

    def more(state: MessagesState) -> str:
        last: Any = state["messages"][-1]
        return "tools" if last.tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([order, bill]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", more, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    saver = InMemorySaver()
    flow = wrap_graph(
        graph.compile(checkpointer=saver),
        input=lambda body: {"messages": [("user", body["message"])]},
        text=word,
        question=asked,
        end=lambda state: {"type": "done", "status": str(len(state["messages"]))},
    )
    desk = desk_of(flow)
    paused = await desk.take(BODY)
    assert texts(paused) == ["question", "waiting"]
    restart(desk, flow)
    rest = await go_on(desk, paused.hitl_id, "agreed")
    assert texts(rest) == ["booked tea: agreed; paid tea", "5"]
    assert sorted(shop.done) == ["book tea", "pay tea"]
    assert texts(await desk.take(BODY)) == ["question", "waiting"]  # the thread goes on
    stored = await saver.aget_tuple({"configurable": {"thread_id": "c1"}})
    assert stored is not None
    assert len(stored.checkpoint["channel_values"]["messages"]) == 5
    # The node does not wait for a tool beside one that interrupts.
    await asyncio.gather(*others(), return_exceptions=True)


def others() -> set[asyncio.Task[Any]]:
    """Return the tasks beside this one."""
    return {one for one in asyncio.all_tasks() if one is not asyncio.current_task()}


@pytest.mark.virtual
async def test_a_call_beside_an_interrupt_may_come_sooner_than_it_did() -> None:
    """It waits for the answer instead of being refused, and is made once behind it."""
    shop, slow = Shop(), asyncio.Event()

    async def beside() -> str:
        if not slow.is_set():
            slow.set()
            await asyncio.get_running_loop().create_future()
        return await shop.book("beside")

    async def asking() -> str:
        await shop.book("asking")
        await slow.wait()
        return str(interrupt("?"))

    desk = desk_of(flow_of(graph_of(*side_by_side(beside, asking))))
    paused = await desk.take(BODY)
    assert shop.done == ["book asking"]
    for one in others():
        one.cancel()
    rest = await go_on(desk, paused.hitl_id)
    assert texts(rest) == ["booked beside, yes", "completed"]
    assert shop.done == ["book asking", "book beside"]
    for one in others():
        one.cancel()


async def test_a_thread_is_read_once_in_an_exchange() -> None:
    """What comes into it meanwhile is not seen by the run that goes on: both have one beginning."""
    shop, saver = Shop(), InMemorySaver()
    flow = flow_of(graph_of(*buying(shop), saver=saver))
    desk = desk_of(flow)
    paused = await desk.take(BODY)
    graph = graph_of(answering(shop), saver=saver)
    await graph.ainvoke({"done": ["meanwhile"], "message": "x"}, thread("c1"))
    rest = await go_on(desk, paused.hitl_id)
    assert texts(rest) == WENT_ON
    stored = await saver.aget_tuple(thread("c1"))
    assert stored is not None
    assert stored.checkpoint["channel_values"]["done"] == ["booked tea", "paid tea"]


def thread(name: str) -> Any:
    """Return the configuration of a thread."""
    return {"configurable": {"thread_id": name}}


class Wide(TypedDict, total=False):
    """A state of many types."""

    message: str
    values: dict[Any, Any]


async def test_the_state_of_a_thread_is_recorded_with_its_texts_legible() -> None:
    """Redaction finds them; values of all types come back as they were."""
    values = {
        "bytes": b"\x00\xff",
        "set": {1, 2},
        "tuple": {(1, 2): "x"},
        "message": HumanMessage("call 555-0100"),
        "infinite": float("inf"),
        "$odd": {7: None},
    }
    seen: list[Any] = []

    async def step(state: Wide) -> Wide:
        seen.append(state.get("values"))
        return {"values": values}

    graph = StateGraph(Wide)
    graph.add_sequence([step])
    graph.add_edge(START, "step")
    desk = desk_of(flow_of(graph.compile(checkpointer=InMemorySaver())))
    for _ in range(2):
        assert texts(await desk.take(BODY)) == ["completed"]
    assert seen == [None, values]
    tape = desk.captured.batches[-1][0].tape
    assert tape is not None
    read = next(entry for entry in tape if entry.op == "read")
    assert b"call 555-0100" in b"".join(map(bytes, read.items))


async def test_a_graph_may_be_made_on_the_routers_loop() -> None:
    """For checkpointers that open connections; one that fails to is tried again."""
    shop, made = Shop(), list[str]()

    async def make() -> Any:
        made.append("made")
        if len(made) == 1:
            raise ConnectionError
        return graph_of(answering(shop))

    desk = desk_of(flow_of(make))
    for _ in range(3):
        assert texts(await desk.take(BODY)) == ANSWER
    assert len(made) == 2


@pytest.mark.parametrize(
    "change",
    [{"question": None}, {"interrupt_before_nodes": ["ask"]}],
    ids=["no question", "breakpoint"],
)
async def test_what_cannot_be_run_ends_in_failure(change: Json) -> None:
    """A question nobody would see; a breakpoint that must not be passed by."""

    async def ask(_: State) -> State:
        interrupt("?")
        return {}

    graph = graph_of(ask)
    flow = flow_of(graph, **change) if "question" in change else flow_of(graph.copy(update=change))
    desk = desk_of(flow)
    await desk.take(BODY)
    assert run_of(desk, "serving").error.kind == "NotRunnable"


async def test_outside_of_the_router_it_says_so() -> None:
    """There is no exchange to work for."""
    events = flow_of(graph_of(answering(Shop())))(None, None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="in the router's process"):
        await anext(events)


@pytest.mark.slow
@pytest.mark.sockets
@pytest.mark.parametrize("blocks", [False, True])
async def test_a_model_behind_the_transport_is_asked_once(*, blocks: bool) -> None:
    """In a shadow, in a node that is executed again, and by a process that knows the tape alone."""

    def verdict(draft: AIMessage) -> Any:
        return {"messages": [AIMessage(f" {interrupt(str(draft.content))}", id="verdict")]}

    async def awaiting(state: MessagesState) -> Any:
        return verdict(await model.ainvoke(state["messages"]))

    def blocking(state: MessagesState) -> Any:
        return verdict(model.invoke(state["messages"]))

    graph = StateGraph(MessagesState)
    graph.add_node("review", blocking if blocks else awaiting)
    graph.add_edge(START, "review")
    async with (
        serving(hello) as provider,
        httpx2.AsyncClient(transport=CutoverTransport()) as http,
    ):
        blocking_http = httpx2.Client(transport=CutoverTransport())
        model = ChatOpenAI(
            model="m",
            api_key=SecretStr(KEY),
            base_url=provider.base_url,
            http_async_client=http,
            http_client=blocking_http,
        )
        flow = wrap_graph(
            graph.compile(),
            input=lambda body: {"messages": [("user", body["message"])]},
            text=word,
            question=asked,
            end=ended,
        )
        desk = desk_of(flow)
        desk.shadow = Decimal(100)
        paused = await desk.take(BODY)
        assert texts(paused) == ["Hello", "question", "waiting"]
        restart(desk, flow)
        rest = await go_on(desk, paused.hitl_id, "Good.")
        assert texts(rest) == [" Good.", "completed"]
        await desk.router.aclose(10.0)
        blocking_http.close()
        assert len(provider.requests) == 1
        assert [line.reason for line in desk.router.ledger.counts] == ["equal"]


async def hello(wire: Wire) -> None:
    """Answer as a provider that streams a word."""
    await wire.head()
    await wire.events(delta(role="assistant", content="Hello"), finish())
    await wire.send(b"data: [DONE]\n\n")
    await wire.end()


STACK = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from cutover_client import effect, wrap_graph


@effect("say", read_only=True)
async def say(message: str) -> str:
    SAID.append(message)
    return f"You get {message}."


async def answer(state: MessagesState):
    text = await say(state["messages"][-1].text)
    get_stream_writer()({"type": "text", "text": text})
    return {"messages": [("ai", text)]}


SAID = []
SAVER = InMemorySaver()
graph = StateGraph(MessagesState)
graph.add_sequence([answer])
graph.add_edge(START, "answer")
FLOWS = {
    "support": wrap_graph(
        graph.compile(checkpointer=SAVER),
        input=lambda body: {"messages": [("user", body["message"])]},
        end=lambda state: {"type": "done", "status": str(len(state["messages"]))},
    )
}
"""


@pytest.mark.slow
async def test_a_replay_on_changed_code_finds_the_difference(module_folder: Path) -> None:
    """From the tape, the thread included: it calls nothing, and the checkpointer is not written."""
    place = module_folder / "replayed_stack.py"
    place.write_text(STACK, "utf-8")
    flow = load_stack("legacy", "replayed_stack:FLOWS").flows["support"]
    desk = desk_of(flow)
    await desk.take(BODY)
    assert texts(await desk.take(BODY)) == ["You get tea.", "4"]
    batch = tuple(desk.captured.batches[-1])
    found = []
    for code in (STACK, STACK.replace("get_stream_writer()({", "get_stream_writer()({'n': 1, ")):
        place.write_text(code, "utf-8")
        sys.modules.pop("replayed_stack", None)
        sides = sides_of("replayed_stack:FLOWS", "graph")
        replayer = Replayer(sides, PlayOptions(declared={"support": DECLARED}), SPECS)
        replayed = await replayer.replay(batch, str.encode, {}, lambda *_: None)
        assert isinstance(replayed, Replayed)
        found.append((replayed.outcome, replayed.equal))
        stack = sys.modules["replayed_stack"]
        assert (stack.SAID, list(stack.SAVER.list(None))) == ([], [])
    assert found == [("completed", True), ("completed", False)]


async def test_a_checkpointer_in_a_file_goes_on_where_the_graph_itself_would(
    tmp_path: Path,
) -> None:
    """Its connection is opened on the router's loop; the graph alone reads what was stored."""

    async def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{len(state['messages'])} so far")]}

    graph = StateGraph(MessagesState)
    graph.add_sequence([answer])
    graph.add_edge(START, "answer")
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "own.sqlite")) as saver:

        async def opened() -> Any:
            return graph.compile(checkpointer=saver)

        flow = wrap_graph(
            opened,
            input=lambda body: {"messages": [("user", body["message"])]},
            text=word,
            end=ended,
        )
        desk = desk_of(flow)
        for so_far in ("1", "3"):
            assert texts(await desk.take(BODY)) == [f"{so_far} so far", "completed"]
        alone = graph.compile(checkpointer=saver)
        state = await alone.ainvoke({"messages": [HumanMessage("and you?")]}, thread("c1"))
        assert state["messages"][-1].text == "5 so far"
        assert texts(await desk.take(BODY)) == ["7 so far", "completed"]
        history = [one async for one in saver.alist(thread("c1"))]
    parents = {one.config["configurable"]["checkpoint_id"]: one.parent_config for one in history}
    assert sum(one is None for one in parents.values()) == 1


async def test_in_a_built_in_flow_events_are_its_json() -> None:
    """And a question is a form, its answer what `human.answer` returns."""

    async def ask(state: State) -> State:
        writer = get_stream_writer()
        writer({"type": "said", "content": state["message"]})
        answer = interrupt(msgspec.to_builtins(QUESTION))
        writer({"type": "said", "content": f"{answer['action']} {answer['data']['colour']}"})
        return {}

    flow = wrap_graph(
        graph_of(ask),
        input=lambda body: {"message": body.message},
        question=lambda number, _: {"type": "asked", "hitl_id": number},
        end=ended,
    )
    desk = Desk(World())
    stacks = {
        name: LocalStack(name, {"asking": flow}, name, bind=client_bound)
        for name in STACKS.values()
    }
    desk.start(stacks=stacks)
    paused = await desk.ask()
    assert paused.said[-1] == "suspended"
    await desk.answer(paused.hitl_id, colour="blue")
    assert (await desk.go_on(paused.hitl_id)).said == ["approve blue", "completed"]
