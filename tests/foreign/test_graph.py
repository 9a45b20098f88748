"""A graph as public projects write them, behind `wrap_graph`."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any
from uuid import UUID

import anyio
import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, interrupt

from cutover import Event, Exchange, Request, Run, Stack, TapedStore, effect, wrap_graph
from cutover.errors import Completed, Pause
from cutover.graph import NoAnswer
from harness.root import equal_shadow
from loadtests.simulator import Simulator
from tests.support.ask import ANSWERS, ASK, Ask, Done, Options, Said
from tests.support.programs import opened
from tests.support.served import ask
from tests.support.stage import breaking

Graph = CompiledStateGraph[Any, Any, Any, Any]


def said(graph: Graph, thread: str = "t") -> list[str]:
    """Return the kinds of the messages that a thread holds, in order."""
    saved = graph.get_state({"configurable": {"thread_id": thread}})
    return [one.type for one in saved.values.get("messages", [])]


def kept(module: Any) -> Any:
    """Return all that a program's saver and store hold."""
    saver, store = module.graph.checkpointer, module.graph.store
    threads = {one: dict(ids) for one, spaces in saver.storage.items() for ids in spaces.values()}
    return threads, [(one.key, one.value) for one in store.search(("questions",))]


@pytest.mark.sockets
@pytest.mark.slow
class TestResearchGraph:
    """The graph of `programs/after/research_graph.py`."""

    QUESTION = Ask("rivers, lakes, what time is it")
    RISKY = Ask("Approve: rivers")
    WHOLE = ("human", "ai", "tool", "ai")

    async def test_a_shadow_leaves_saver_and_store_alone(self, sim: Simulator) -> None:
        """It begins where the served run began, finds every call, and stores nothing."""
        async with opened("after", "research_graph") as program:
            for turn in (1, 2):
                heard = await ask(ASK, self.QUESTION, program.stack)
                assert isinstance(heard.outcome, Completed), heard.outcome
                before, asked = kept(program), len(sim.requests)
                played = await heard.shadow(program.stack)
                assert equal_shadow(heard.served, played), (played.outcome, played.sent)
                assert (kept(program), len(sim.requests)) == (before, asked)
                assert said(program.graph) == [*self.WHOLE] * turn
                assert not played.run.escaped

    @pytest.mark.parametrize("how", ["exception", "wrong_event", "exit"])
    async def test_a_takeover_doubles_no_message(self, sim: Simulator, how: str) -> None:
        """The broken run leaves no trace in the thread, and the store is written once."""
        async with opened("after", "research_graph") as program:
            whole = await ask(ASK, self.QUESTION, program.stack)
            asked, count = len(sim.requests), len(whole.events)
            for turn, at in enumerate((0, 1, count // 2, count - 1), start=2):
                before = len(sim.requests)
                broken = breaking(at, how if at else "exception")(program.stack)
                heard = await ask(ASK, self.QUESTION, broken, program.stack)
                assert isinstance(heard.outcome, Completed), (at, heard.outcome)
                assert len(sim.requests) - before == asked, at
                assert said(program.graph) == [*self.WHOLE] * turn, at
                assert len(program.graph.store.search(("questions",))) == turn

    async def test_a_resumed_run_doubles_no_message(self, sim: Simulator) -> None:
        """The run from the start, once there is an answer, begins where the paused one did."""
        async with opened("after", "research_graph") as program:
            await ask(ASK, Ask("rivers"), program.stack)
            paused = await ask(ASK, self.RISKY, program.stack)
            assert isinstance(paused.outcome, Pause)
            assert [one["type"] for one in paused.events] == ["noted", "asked", "suspended"]
            assert said(program.graph) == ["human", "ai"]
            ANSWERS[self.RISKY.text] = "yes"
            try:
                asked = len(sim.requests)
                heard = await ask(ASK, self.RISKY, program.stack, resumes=paused)
                assert isinstance(heard.outcome, Completed), heard.outcome
                assert len(sim.requests) == asked + 1
                assert {"type": "noted", "note": {"approved": "yes"}} in heard.events
                assert said(program.graph) == ["human", "ai"] * 2
                assert len(program.graph.store.search(("questions",))) == 2
                assert equal_shadow(heard.served, await heard.shadow(program.stack))
            finally:
                ANSWERS.clear()


class Counted(MessagesState):
    """A conversation."""


def counting(thread: InMemorySaver) -> Stack:
    """Return a graph that says how many messages its thread holds."""

    def answer(state: Counted) -> dict[str, Any]:
        get_stream_writer()(f"turn {len(state['messages']) // 2 + 1}")
        return {"messages": [AIMessage("counted")]}

    builder = StateGraph(Counted)
    builder.add_node(answer)
    builder.add_edge(START, "answer")
    return streamed(builder.compile(checkpointer=thread))


def streamed(graph: Graph) -> Stack:
    """Return the stack that streams what the nodes of a graph write."""
    taped = wrap_graph(graph)

    async def stack(request: Request[Ask, Options]) -> AsyncIterator[Event]:
        thread: Any = {"configurable": {"thread_id": request.body.thread}}
        said = {"messages": [("user", request.body.text)]}
        stream = taped.astream(said, thread, stream_mode="custom", subgraphs=True)
        async with aclosing(stream) as parts:
            async for _place, part in parts:
                yield Said(str(part))
        yield Done()

    return stack


def by_hand(text: str) -> Stack:
    """Return a stack that says `text`."""

    async def stack(_: Request[Any, Any]) -> AsyncIterator[Event]:
        yield Said(text)
        yield Done()

    return stack


def threads(saver: InMemorySaver) -> set[str]:
    """Return the threads that hold a state."""
    return {name for name, spaces in saver.storage.items() if any(spaces.values())}


async def test_shadows_have_a_thread_of_their_own_where_another_stack_serves() -> None:
    """They know earlier turns; the thread that serves does not know of them."""
    saver = InMemorySaver()
    graph = counting(saver)
    for turn in (1, 2, 3):
        heard = await ask(ASK, Ask("hello"), by_hand(f"turn {turn}"))
        for _ in range(2):  # the second shadow of an exchange begins where the first one did
            assert equal_shadow(heard.served, await heard.shadow(graph)), turn
    assert threads(saver) == {"shadow:t"}
    heard = await ask(ASK, Ask("hello"), graph)
    assert heard.text == "turn 1"
    assert threads(saver) == {"shadow:t", "t"}


def remembers(**settings: Any) -> Any:
    """Return a graph of two nodes that remembers its messages."""

    def first(_: Counted) -> dict[str, Any]:
        return {"messages": [AIMessage("first")]}

    def second(state: Counted) -> dict[str, Any]:
        return {"messages": [AIMessage(f"second of {len(state['messages'])}")]}

    builder: Any = StateGraph(Counted)
    builder.add_sequence([first, second])
    builder.add_edge(START, "first")
    return builder.compile(checkpointer=InMemorySaver(), **settings)


def texts(state: Any) -> list[str]:
    """Return what a state's messages say."""
    return [one.text for one in state["messages"]]


@pytest.mark.parametrize("thread", ["t", 7, UUID(int=1)])
@pytest.mark.parametrize("taped", [False, True])
async def test_calls_of_one_run_go_on_from_each_other(thread: Any, taped: bool) -> None:
    """As outside: a thread has a text, a number or a UUID, a breakpoint is gone on from."""
    place: Any = {"configurable": {"thread_id": thread}}
    whole = remembers()
    graph = wrap_graph(whole) if taped else whole
    exchange = Exchange()
    for run in (
        Run(exchange, "broken"),
        Run(exchange, "graph"),
        Run(exchange, "graph", "shadow", "play"),
    ):
        with run.current() if taped else nullcontext():
            state = await graph.ainvoke({"messages": ["hi"]}, place)
            assert texts(state) == ["hi", "first", "second of 2"]
            stopped = graph.with_config(place).astream(
                {"messages": ["on"]}, interrupt_before=["second"], stream_mode=["updates"]
            )
            *_, (_, last) = [part async for part in stopped]
            assert last == {"__interrupt__": ()}
            state = await graph.ainvoke(None, place)
            assert texts(state)[3:] == ["on", "first", "second of 5"]
            saved = await whole.aget_state(place)
            assert len(saved.values["messages"]) == 6
        run.fence()
        if not taped:
            break
    await exchange.aclose()


async def test_a_cached_node_is_reported() -> None:
    """What a `CachePolicy` answers is an update like others."""
    builder: Any = StateGraph(Counted)
    builder.add_node("one", lambda _: {"messages": []}, cache_policy=CachePolicy())
    builder.add_edge(START, "one")
    graph = wrap_graph(builder.compile(cache=InMemoryCache()), answer=nothing)
    for _ in range(2):
        stream = graph.astream({"messages": []}, stream_mode="updates")
        assert [part["one"] async for part in stream] == [{"messages": []}]


async def test_a_graph_with_a_saver_needs_a_thread() -> None:
    """Without one all users would share one conversation."""
    graph = StateGraph(Counted).add_node("one", lambda _: {}).add_edge(START, "one")
    with pytest.raises(ValueError, match="thread_id"):
        await anext(wrap_graph(graph.compile(checkpointer=InMemorySaver())).astream({}))


def two_steps() -> Graph:
    """Return a graph that writes, asks, and writes again in a subgraph."""

    def ask_first(_: Counted) -> dict[str, Any]:
        get_stream_writer()("asking")
        return {"messages": [AIMessage(str(interrupt("sure?")), id="answer")]}

    def count(_: Counted) -> dict[str, Any]:
        get_stream_writer()("counting")
        return {}

    inner: Any = StateGraph(Counted)
    inner.add_node(count)
    inner.add_edge(START, "count")
    builder: Any = StateGraph(Counted)
    builder.add_node(ask_first)
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "ask_first")
    builder.add_edge("ask_first", "inner")
    graph: Graph = builder.compile()
    return graph


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize(
    "modes", ["custom", "updates", ["custom"], ["custom", "updates"], ["values", "custom"]]
)
async def test_parts_are_langgraphs_own(modes: Any, subgraphs: bool, version: Any) -> None:
    """In the form in which LangGraph yields them, with the question as it reports it."""
    graph: Any = two_steps()
    thread = {"configurable": {"thread_id": "t"}}
    asked: Any = {"messages": []}
    settings: Any = {"stream_mode": modes, "subgraphs": subgraphs, "version": version}

    async def answer(question: str) -> str:
        return f"{question} yes"

    streamed = wrap_graph(graph, answer=answer).astream(asked, **settings)
    parts = [part async for part in streamed]
    plain = graph.copy({"checkpointer": InMemorySaver()})
    first = [part async for part in plain.astream(asked, thread, **settings)]
    given: Any = Command(resume="sure? yes")
    second = [part async for part in plain.astream(given, thread, **settings)]
    own = [*first, *second]
    assert [anonymous(part) for part in parts] == [anonymous(part) for part in own]


async def nothing(_: object) -> dict[str, Any]:
    """Answer with nothing."""
    return {}


def anonymous(part: object) -> str:
    """Return a part without the ids that LangGraph draws for each run."""
    return re.sub(r"[0-9a-f-]{32,36}", "ID", str(part))


@pytest.mark.parametrize("mode", ["updates", "custom", "values"])
@pytest.mark.parametrize("answer", [None, nothing])
async def test_a_question_without_an_answer_is_said(answer: Any, mode: Any) -> None:
    """A graph that interrupts needs `answer`, and LangGraph takes None and `{}` for none."""
    taped = wrap_graph(two_steps().copy({"checkpointer": InMemorySaver()}), answer=answer)
    thread: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(NoAnswer, match="answer="):
        async for _ in taped.astream({"messages": []}, thread, stream_mode=mode):
            pass


async def test_a_stream_that_is_dropped_leaves_no_node_running() -> None:
    """Code that does not close its generators ends them all the same, a moment later."""
    ended = asyncio.Event()

    async def wait(_: MessagesState) -> dict[str, Any]:
        for text in ("on", " and on"):
            get_stream_writer()(text)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    builder: Any = StateGraph(MessagesState)
    builder.add_node(wait)
    builder.add_edge(START, "wait")
    taped = wrap_graph(builder.compile())

    async def stack(_: Request[Ask, Options]) -> AsyncIterator[Event]:
        async for part in taped.astream({"messages": []}, stream_mode="custom"):
            yield Said(part)

    heard = await ask(ASK, Ask("hello"), breaking(1, "exception")(stack), by_hand("on and on"))
    assert isinstance(heard.outcome, Completed), heard.outcome
    await asyncio.wait_for(ended.wait(), timeout=5)


def of_node(node: Any, *, nested: bool = False) -> Stack:
    """Return the stack of a graph of one node, or of one whose node is such a graph."""
    builder = StateGraph(MessagesState).add_node("inner", node).add_edge(START, "inner")
    if nested:
        outer = StateGraph(MessagesState).add_node("outer", builder.compile())
        builder = outer.add_edge(START, "outer")
    return streamed(builder.compile())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_a_node_ends_its_run_alone(error: BaseException, nested: bool) -> None:
    """`SystemExit` and a cancellation of its own are errors of the stack: another one goes on."""

    async def leave(_: MessagesState) -> dict[str, Any]:
        get_stream_writer()("on")
        raise error

    heard = await ask(ASK, Ask("hello"), of_node(leave, nested=nested), by_hand("on and on"))
    assert isinstance(heard.outcome, Completed), heard.outcome
    assert heard.text == "on and on"


@pytest.mark.parametrize("nested", [False, True])
async def test_a_cancelled_scope_leaves_no_node_running(nested: bool) -> None:
    """Closed from a cancelled AnyIO scope, LangGraph alone would leave its nodes running."""
    ended = asyncio.Event()

    async def wait(_: MessagesState) -> dict[str, Any]:
        get_stream_writer()("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    stack = of_node(wait, nested=nested)
    with anyio.CancelScope() as scope:
        async for event in stack(Request(Ask("hello"), Options())):
            assert event == Said("waiting")
            scope.cancel()
    assert not (await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5))[1]
    assert ended.is_set()


@tool
def plain(text: str) -> str:
    """Touch the world, past the tape."""
    return text.upper()


@effect("tool.taped", writes=True)
def written(text: str) -> str:
    """Touch the world."""
    return text.lower()


@tool
async def taped(text: str) -> str:
    """Touch the world in a task, through an effect."""
    return await asyncio.create_task(asyncio.to_thread(written, text))


@tool
def fails(text: str) -> str:
    """Touch the world, and fail."""
    raise ValueError(text)


async def test_a_tool_that_ran_in_a_shadow_without_an_entry_is_named() -> None:
    """Of tools that run at the same time, those that made no call are counted."""
    tools = [plain, taped, fails]

    def choose(_: MessagesState) -> dict[str, Any]:
        calls = [
            {"name": one.name, "args": {"text": "Hi"}, "id": f"{one.name}-{place}"}
            for place in range(2)
            for one in tools
        ]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node(choose)
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    builder.add_edge(START, "choose")
    builder.add_edge("choose", "tools")
    stack = streamed(builder.compile())
    heard = await ask(ASK, Ask("hello"), stack)
    played = await heard.shadow(stack)
    assert equal_shadow(heard.served, played)
    assert played.run.escaped == {"plain": 2, "fails": 2}


async def test_a_store_gets_operations_as_they_are() -> None:
    """Also what decides nothing about what is found."""
    seen: list[Any] = []

    class Seen(InMemoryStore):
        async def abatch(self, ops: Any) -> Any:
            seen.extend(ops)
            return await super().abatch(ops)

    ops: list[Any] = [
        PutOp(("a",), "k", {"text": "x"}, index=False),
        GetOp(("a",), "k", refresh_ttl=False),
        SearchOp(("a",), {"text": "x"}, 3, 1, "x", refresh_ttl=False),
    ]
    exchange = Exchange()
    with Run(exchange, "graph").current():
        await TapedStore(Seen()).abatch(ops)
    await exchange.aclose()
    assert seen == ops
