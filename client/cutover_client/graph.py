"""A compiled LangGraph as a flow of a stack in the router's process."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    closing,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from langgraph.config import get_config
from langgraph.errors import NodeCancelledError
from langgraph.types import Command

from cutover_client.calls import (
    Call,
    EffectInDoubt,
    ExchangeOver,
    GatewayError,
    Perform,
    Played,
    Report,
)
from cutover_client.exchange import RunExchange, bound, current_exchange
from cutover_client.graph_thread import GraphThread
from cutover_client.requests import Answer, Head, HttpFailed, HttpRequest, Send

_END: Final = object()
_INTERRUPT: Final = "__interrupt__"
_MISMATCH: Final = "resume_mismatch"
_IN_DOUBT: Final = "effect_in_doubt"
_OVER: Final = "exchange_over"
_BEGUN: Final = "it was begun before the interrupt, and may have happened"
_WAIT: Final = 0.01
_TRIES: Final = 100
"""A call that is refused has waited so often, and so many seconds each time."""
_NOT_IN_PROCESS: Final = "a wrapped graph is a flow of a stack in the router's process ([stacks])"
_BREAKPOINT: Final = "interrupt_before and interrupt_after ask nothing: use interrupt()"
_NO_QUESTION: Final = "the graph interrupts, and wrap_graph has no question= to show it"
_OF_THE_MODEL: Final = frozenset({"ai", "AIMessageChunk"})

T = TypeVar("T")
Events = Callable[[Any, Any], AsyncIterator[Any]]


class NotRunnable(Exception):
    """A graph cannot be run as it was wrapped; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapped:
    """What `wrap_graph` was called with."""

    input: Callable[[Any], Any]
    text: Callable[[str], Any] | None
    nodes: frozenset[str]
    question: Callable[[str, Any], Any] | None
    end: Callable[[Any], Any] | None
    thread: Callable[[Any], str | None] | None
    config: Callable[[Any], Mapping[str, Any]]
    context: Callable[[Any], Any]
    steps: int


def wrap_graph(
    graph: Any,
    *,
    input: Callable[[Any], Any],  # noqa: A002 - the engine's own word
    text: Callable[[str], Any] | None = None,
    nodes: Collection[str] = (),
    question: Callable[[str, Any], Any] | None = None,
    end: Callable[[Any], Any] | None = None,
    thread: Callable[[Any], str | None] | None = None,
    config: Callable[[Any], Mapping[str, Any]] = lambda _: {},
    context: Callable[[Any], Any] = lambda _: None,
    steps: int = 50,
) -> Events:
    """Return a flow that runs a compiled LangGraph.

    `graph` is the graph, or a function that returns it, called once on the router's loop and
    awaited where it is a coroutine. `input` makes its input of a request's body. What its nodes
    hand to the stream writer are events, as they are. `text` makes an event of each piece of text
    of a model, of all nodes or of those in `nodes`; `question` one of the id and the value of an
    `interrupt()`; `end` the last one of the final state, once that is stored.

    `thread` names the thread in the graph's checkpointer; by default it is the request's
    conversation. `config` returns further keys of the engine's configuration, `context` the run's
    context. `steps` limits the supersteps.
    """
    wrapped = _Wrapped(
        input=input,
        text=text,
        nodes=frozenset(nodes),
        question=question,
        end=end,
        thread=thread,
        config=config,
        context=context,
        steps=steps,
    )
    compiled = _Compiled(graph)

    async def flow(request: Any, _effects: Any) -> AsyncIterator[Any]:
        exchange = current_exchange()
        if not hasattr(exchange, "ask"):
            raise NotRunnable(_NOT_IN_PROCESS)
        run = _Run(wrapped, await compiled.get(), cast("RunExchange", exchange), request.body)
        task = asyncio.create_task(run.drive(), name="graph run")
        task.add_done_callback(lambda _: run.events.put_nowait(_END))
        try:
            while (event := await run.events.get()) is not _END:
                yield event
                run.events.task_done()  # the reader has come back
            await task
        finally:
            await _stop(task)
            del task  # its error knows this frame

    return flow


class _Compiled:
    """The graph, made once for each loop."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._made: tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]] | None = None

    async def get(self) -> Any:
        if not callable(self._graph):
            return self._graph
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[0] is not loop or _failed(self._made[1]):
            self._made = loop, loop.create_task(self._make())
        return await asyncio.shield(self._made[1])

    async def _make(self) -> Any:
        made = self._graph()
        return await made if inspect.isawaitable(made) else made


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, however often we are cancelled meanwhile."""
    interrupted = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            interrupted = True
    if not task.cancelled():
        task.exception()
    if interrupted:
        raise asyncio.CancelledError


class _Sent(NamedTuple):
    """An event, and where in the graph it came from."""

    graph: tuple[str, ...]
    node: str
    event: Any


class _Run:
    """One run of a graph; its `events` are those of the flow."""

    def __init__(self, wrapped: _Wrapped, graph: Any, exchange: RunExchange, body: Any) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self._wrapped = wrapped
        self._graph = graph
        self._exchange = exchange
        self._body = body
        self._calls = _RepeatedCalls(exchange)
        self._state: Any = None
        self._sent: list[_Sent] = []
        self._repeated: list[_Sent] = []

    async def drive(self) -> None:
        """Run the graph to its end, through any number of questions."""
        try:
            await self._drive()
        except NodeCancelledError as lost:
            raise asyncio.CancelledError from lost  # what the node raised
        except Exception:
            if self._calls.mismatch is not None:  # whatever the graph made of it
                raise self._calls.mismatch from self._calls.mismatch.__cause__
            raise

    async def _drive(self) -> None:
        wrapped = self._wrapped
        named = (
            self._exchange.conversation if wrapped.thread is None else wrapped.thread(self._body)
        )
        thread = await GraphThread.opened(self._graph.checkpointer, named or "")
        graph = self._graph.copy(update={"checkpointer": thread.saver})
        config = self._config(thread)
        todo = wrapped.input(self._body)
        while questions := await self._stream(graph, todo, config):
            todo = Command(resume=await self._answers(questions))
            self._calls = self._calls.next()
            self._sent, self._repeated = [], self._sent
        if self._calls.mismatch is not None:
            raise self._calls.mismatch
        if self._exchange.headers["x-cutover-role"] in {"serving", "fallback"}:
            await thread.store()
        if wrapped.end is not None:
            self.events.put_nowait(wrapped.end(self._state))

    def _config(self, thread: GraphThread) -> dict[str, Any]:
        own = dict(self._wrapped.config(self._body))
        configurable = {**own.pop("configurable", {}), **thread.config["configurable"]}
        return {"recursion_limit": self._wrapped.steps, **own, "configurable": configurable}

    async def _stream(self, graph: Any, todo: Any, config: dict[str, Any]) -> list[Any]:
        """Run the graph until it ends or waits for answers; return its questions."""
        wrapped = self._wrapped
        modes = ["values", "custom", *(["messages"] if wrapped.text else [])]
        begun: set[tuple[str, ...]] = set()
        waiting: set[tuple[str, ...]] = set()
        stream = graph.astream(
            todo,
            config,
            context=wrapped.context(self._body),
            stream_mode=modes,
            subgraphs=True,
            durability="exit",
        )
        with bound(self._calls):  # the nodes of this execution keep it
            async for source, mode, value in stream:
                if mode == "custom":
                    self._send(_Sent(source, "", value))
                elif mode == "messages":
                    self._send_text(source, *value)
                elif isinstance(value, Mapping) and _INTERRUPT in value:
                    waiting.add(source)
                elif source not in begun:
                    begun.add(source)
                elif source not in waiting:
                    # A superstep has ended: none of its nodes is executed again.
                    self._sent = [one for one in self._sent if one.graph != source]
                    self._repeated = [one for one in self._repeated if one.graph != source]
        snapshot = await graph.aget_state(config)
        if snapshot.next and not snapshot.interrupts:
            raise NotRunnable(_BREAKPOINT)
        self._state = snapshot.values
        # The order in which they came differs from run to run.
        return sorted(snapshot.interrupts, key=lambda one: json.dumps(one.value, default=repr))

    def _send_text(self, source: tuple[str, ...], message: Any, metadata: Any) -> None:
        nodes, make = self._wrapped.nodes, self._wrapped.text
        if message.type not in _OF_THE_MODEL or make is None:
            return
        if nodes and metadata.get("langgraph_node") not in nodes:
            return
        text = message.text if isinstance(message.text, str) else message.text()
        if text:
            self._send(_Sent(source, metadata.get("langgraph_checkpoint_ns", ""), make(str(text))))

    def _send(self, sent: _Sent) -> None:
        """Hand an event over, unless an execution of its node before this one has."""
        if self._calls.mismatch is not None:
            return
        self._sent.append(sent)
        if sent in self._repeated:
            self._repeated.remove(sent)
        else:
            self.events.put_nowait(sent.event)

    async def _answers(self, questions: list[Any]) -> dict[str, Any]:
        make = self._wrapped.question
        if make is None:
            raise NotRunnable(_NO_QUESTION)
        answers = {}
        for question in questions:
            number = await self._exchange.ask(question.value)
            self.events.put_nowait(make(number, question.value))
            await self.events.join()  # what comes after the answer is new to the client
            answers[question.id] = await self._exchange.answered(number)
        return answers


@dataclass(slots=True, eq=False)
class _Made:
    """A call of an effect, and what came of it; None while that is not known."""

    call: Call
    came: Any = None
    refused: bool = False

    def same(self, call: Call) -> bool:
        mine = self.call
        return (mine.effect, mine.arguments, mine.key) == (call.effect, call.arguments, call.key)


@dataclass(slots=True)
class _Answered:
    """The answer of a call of the model, as far as it was read."""

    read: list[Head | bytes] = field(default_factory=list)
    failed: HttpFailed | None = None

    def take(self, piece: Head | bytes) -> bool:
        """Take what came; return whether that is the refusal of a call that is not on the tape."""
        self.read.append(piece)
        return isinstance(piece, Head) and getattr(piece.cause, "code", "") == _MISMATCH

    def pieces(self) -> Iterator[Head | bytes]:
        """Yield all of it; raises how it failed."""
        yield from self.read
        if self.failed is not None:
            raise self.failed


def _call_of(request: HttpRequest) -> Call:
    arguments = request.query, request.kind, request.body
    return Call(f"{request.method} {request.path}", arguments, read_only=True)


@dataclass(slots=True)
class _Task:
    """One node in one superstep: its calls, and those this execution has not made again."""

    made: list[_Made] = field(default_factory=list)
    due: list[_Made] = field(default_factory=list)


async def _until(look: Callable[[int], T | None]) -> T:
    """Wait until a function of the number of tries so far returns something, and return that."""
    tries = 0
    while (found := look(tries)) is None:
        tries += 1
        await asyncio.sleep(_WAIT)
    return found


def _until_blocking(look: Callable[[int], T | None]) -> T:
    """Wait as `_until` does."""
    tries = 0
    while (found := look(tries)) is None:
        tries += 1
        time.sleep(_WAIT)
    return found


class _RepeatedCalls:
    """An exchange for the nodes of a graph, which the engine executes again after an interrupt.

    A call that a node made before is answered with what came of it. One that it did not make then
    is refused before the answer, as the exchange refuses a call that is not on its tape. It waits
    a moment before: a call beside the one that interrupts may come sooner than it did before.
    """

    def __init__(self, exchange: RunExchange) -> None:
        self.headers = exchange.headers
        self.mismatch: GatewayError | None = None
        self._exchange = exchange
        self._tasks: dict[str, _Task] = {}
        self._performing: dict[int, tuple[Perform, _Made]] = {}
        self._over = False
        self._lock = threading.Lock()

    def next(self) -> _RepeatedCalls:
        """Return the one for the next execution of the nodes that were interrupted.

        What they have left running calls nothing from now on: it would be called twice.
        """
        after = _RepeatedCalls(self._exchange)
        with self._lock:
            self._over = True
            for name, task in self._tasks.items():
                after._tasks[name] = _Task([*task.made], [*task.made])
        return after

    async def begin(self, call: Call) -> Perform | Played | None:
        """Begin a call, or return what came of it in the execution before."""
        made, again = await _until(partial(self._entry, call))
        if isinstance(again, Played):
            return again
        try:
            return self._noted(made, await self._exchange.begin(call))
        except GatewayError as error:
            await _until(partial(self._refusal, made, error))
            raise

    def begin_blocking(self, call: Call) -> Perform | Played | None:
        """Begin one as `begin` does."""
        made, again = _until_blocking(partial(self._entry, call))
        if isinstance(again, Played):
            return again
        try:
            return self._noted(made, self._exchange.begin_blocking(call))
        except GatewayError as error:
            _until_blocking(partial(self._refusal, made, error))
            raise

    async def answer(self, request: HttpRequest, send: Send) -> Answer:
        """Answer a call of the model, with what came of it in the execution before."""
        call = _call_of(request)
        made, again = await _until(partial(self._entry, call))
        if again is not None:
            for piece in again.pieces():
                yield piece
            return
        came = _Answered()
        try:
            async with aclosing(self._exchange.answer(request, send)) as answer:
                async for piece in answer:
                    if came.take(piece):
                        error = self._exchange.mismatch(call.effect)
                        await _until(partial(self._refusal, made, error))
                    yield piece
        except HttpFailed as failed:
            came.failed = failed
            raise
        finally:
            made.came = came

    def answer_blocking(
        self, request: HttpRequest, send: Send
    ) -> Generator[Head | bytes, None, None]:
        """Answer as `answer` does."""
        call = _call_of(request)
        made, again = _until_blocking(partial(self._entry, call))
        if again is not None:
            yield from again.pieces()
            return
        came = _Answered()
        try:
            with closing(self._exchange.answer_blocking(request, send)) as answer:
                for piece in answer:
                    if came.take(piece):
                        error = self._exchange.mismatch(call.effect)
                        _until_blocking(partial(self._refusal, made, error))
                    yield piece
        except HttpFailed as failed:
            came.failed = failed
            raise
        finally:
            made.came = came

    async def report(self, told: Perform, report: Report) -> None:
        await self._exchange.report(told, report)
        self._take(told, report)

    def report_blocking(self, told: Perform, report: Report) -> None:
        self._exchange.report_blocking(told, report)
        self._take(told, report)

    def alive(self, told: Perform) -> AbstractAsyncContextManager[None]:
        return self._exchange.alive(told)

    def alive_blocking(self, told: Perform) -> AbstractContextManager[None]:
        return self._exchange.alive_blocking(told)

    def _entry(self, call: Call, tries: int) -> tuple[_Made, Any] | None:
        """Return the note of a call, and what came of it in the execution before, if it was there.

        None where it must not be made yet. Raises `GatewayError` where it has waited in vain.
        """
        name, scratchpad = _node()
        with self._lock:
            if self.mismatch is not None:
                raise self.mismatch
            if self._over:
                raise ExchangeOver(_OVER, f"{call.effect!r}: its node is executed again")
            task = self._tasks.setdefault(name, _Task())
            due = (one for one in task.due if one.same(call) and not one.refused)
            again = next(due, None)
            if again is not None and again.came is not None:
                task.due.remove(again)
                return again, again.came
            if again is None and not _before_answer(scratchpad, task, call):
                task.made.append(_Made(call))
                return task.made[-1], None
            if tries < _TRIES:
                return None
            if again is not None:
                raise EffectInDoubt(_IN_DOUBT, f"{call.effect!r}: {_BEGUN}")
            self.mismatch = self._exchange.mismatch(call.effect)
            raise self.mismatch

    def _refusal(self, made: _Made, error: GatewayError, tries: int) -> GatewayError | None:
        """Return the error of a call that the exchange has refused, once it is so for good.

        One that is not on the tape is, unless its node is about to interrupt: then nobody waits for
        the call any more, and the next execution makes it.
        """
        with self._lock:
            made.refused = True
            if error.code == _MISMATCH and not self._over:
                if tries < _TRIES:
                    return None
                self.mismatch = error
            return error

    def _noted(self, made: _Made, told: Perform | Played | None) -> Perform | Played | None:
        with self._lock:
            if isinstance(told, Played):
                made.came = told
            elif told is not None:
                self._performing[id(told)] = told, made
        return told

    def _take(self, told: Perform, report: Report) -> None:
        with self._lock:
            _, made = self._performing.pop(id(told))
            made.came = Played(report.items, report.result, report.error)


def _node() -> tuple[str, Any]:
    """Return the engine's name of the node's task that calls, and its notes on its interrupts."""
    with suppress(RuntimeError):  # outside of any node
        configured = get_config().get("configurable", {})
        return configured.get("checkpoint_ns", ""), configured.get("__pregel_scratchpad")
    return "", None


def _before_answer(scratchpad: Any, task: _Task, call: Call) -> bool:
    """Whether a node that is executed again makes a call before its interrupt has returned.

    Where a subgraph below it was interrupted, its own notes do not show that: then a call is not
    made where one of that name is due with other arguments.
    """
    answered = len(getattr(scratchpad, "resume", ()))
    if not answered:
        return any(one.call.effect == call.effect and not one.refused for one in task.due)
    counter = getattr(getattr(scratchpad, "interrupt_counter", None), "_counter", None)
    # The count is shown by its text alone.
    shown = re.search(r"count\((\d+)\)", repr(getattr(counter, "__self__", "")))
    return shown is None or int(shown[1]) < answered
