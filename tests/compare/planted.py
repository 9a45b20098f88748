"""Planted faults: what is wrong in which stack, and the first cause that must be named for it.

Each cause is stated from what the fault is: its kind, the name of the event, effect or channel, the
place in it. Differences are read from legacy to graph, so an event that legacy drops is `added`.
Rows are: exchange, stack, what it does, the cause's kind, name and path, and the fault.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cutover import Event, Refused, Request, StackFailed
from cutover.wire import AnswerHead, Piece, WholeBody
from effects import conversations
from effects.memory import Memory
from effects.workers.registry import Result
from rules.flows.companion import CompanionToolResult
from rules.flows.ops import OpsProgress
from tests.compare.exchanges import Name, completing, stacks
from tests.support.planting import (
    Change,
    Mutation,
    adds,
    doubles,
    drops,
    edited,
    edits,
    ends,
    fails_as,
    gets,
    has,
    holds,
    moves,
    returns,
    says,
    sets,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A fault of one stack in an exchange, in its `code` or its `stream`.

    `cause` is the first one: kind, name and path, those that are not empty.
    """

    exchange: str
    stack: Name
    cause: str
    stream: Change | None = None
    code: Mutation | None = None

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Put the fault into the stack, until the test ends."""
        if self.code is not None:
            self.code(patch)
        if self.stream is not None:
            found, flow = stacks(self.exchange, self.stack), self.exchange.partition(",")[0]
            patch.setitem(found, flow, self.stream(found[flow]))


FLOWS = ("chat", "companion", "ops", "pipeline", "session")
LEGACY = {name: import_module(f"legacy.{name}") for name in (*FLOWS, "model")}
GRAPH = {name: import_module(f"graph_impl.{name}") for name in (*FLOWS, "flow")}


def _louder(text: str) -> str:
    return f"{text}!"


async def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


async def _users_alone(turn: Any) -> None:
    """Store what the user said, and no reply."""
    if turn.role == "user":
        await conversations.add(turn)


def _unfiltered(store: Any) -> Any:
    return SimpleNamespace(
        asearch=lambda *a, **named: store.asearch(*a, **named | {"filter": None})
    )


async def _unsaid(turn: Any) -> None:
    """Store a turn with nothing in it."""
    await conversations.add(msgspec.structs.replace(turn, content=""))


def _another_model(entry: Any) -> Any:
    return msgspec.structs.replace(entry, name="gpt-4o")


class _NoMemory:
    """A store in which nothing is found, and nothing is kept."""

    async def asearch(self, *_: Any, **__: Any) -> list[Any]:
        """Return nothing."""
        return []

    async def aput(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""


class _Tools:
    """The tools of a deployment, called otherwise."""

    def __init__(self, tools: Any, call: Callable[..., Any]) -> None:
        self._tools, self._call = tools, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tools, name)

    async def call(self, name: str, arguments: Any, **users: Any) -> str:
        """Call a tool."""
        said: str = await self._call(self._tools.call, name, arguments, **users)
        return said


def _calls(change: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda world: SimpleNamespace(tools=_Tools(world.tools, change))


async def _twice(call: Any, *args: Any, **users: Any) -> Any:
    await call(*args, **users)
    return await call(*args, **users)


async def _from_memory(_call: Any, *_: Any, **__: Any) -> str:
    return "84"


async def _with_spaces(call: Any, name: str, arguments: Any, **users: Any) -> Any:
    return await call(name, {"expression": arguments["expression"].replace(" ", "")}, **users)


async def _rounded(call: Any, *args: Any, **users: Any) -> str:
    return f"{await call(*args, **users)}.0"


class _Workers:
    """Workers that do something else; without others behind them, nothing."""

    def __init__(self, workers: Any = None) -> None:
        self._workers = workers

    async def run(self, worker: str, action: str, args: Any) -> AsyncIterator[Any]:
        """Carry out an instruction for another port, or say that it was."""
        if self._workers is None:
            yield Result(ok=False, message=REFUSED)
            return
        async for report in self._workers.run(worker, action, args | {"port": 2}):
            yield report


def _other_workers(world: Any) -> Any:
    return SimpleNamespace(workers=_Workers(world.workers))


def _without_reasoning(event: Any) -> tuple[Event, ...]:
    return (msgspec.structs.replace(event, reason_content=""),)


def _of_no_kind(key: str, text: str, _: str, session: str) -> Memory:
    return Memory(key, text, "other", session)


async def _refusing(_: Request[Any, Any]) -> AsyncIterator[Event]:
    """Refuse as a service does."""
    yield AnswerHead(404, (("content-type", "application/json"),))
    yield WholeBody(b'{"error":"nothing here"}')


REFUSED = "::1:1 cannot be reached: Connection refused"
NOW = "        now = await read_clock()\n"
RELEASE = "        await locks.release(lock, token)\n"
KEEP = "        await conversations.add(replace(turn, **reply, name=None, at=now))\n"
MARK = (
    '    await store.aput(readings(user_id), session_id, {"message": turns[-1].id}, index=False)\n'
)
SEEN = "    seen = {one.text for one in known}\n"

BROKEN = ZeroDivisionError("planted")
Stream = tuple[str, Name, str, str, Change]
Code = tuple[str, Name, str, str, Mutation]
# fmt: off
_STREAMS: tuple[Stream, ...] = (
    # How it ends
    ("chat, long", "graph", "breaks in its text", "outcome", ends("SEND", 4, BROKEN)),
    ("companion, plain", "legacy", "stops before its last event", "outcome", ends("done")),
    ("pipeline, plain", "graph", "breaks before its first event", "outcome", ends("*", 1, BROKEN)),
    ("session, long", "legacy", "breaks in its text", "outcome", ends("text", 3, BROKEN)),
    ("ops, two steps", "graph", "breaks behind a step", "outcome", ends("result", 2, BROKEN)),
    ("companion, fails", "graph", "fails with another code", "outcome",
     fails_as(StackFailed("model_error", "world"))),
    ("session, plain", "graph", "refuses what legacy answers", "outcome",
     ends("*", 1, Refused(404, "unknown_session"))),
    ("completions", "graph", "refuses what legacy answers", "outcome", lambda _: _refusing),
    ("lines", "legacy", "reports a failure in its stream", "outcome",
     adds(Piece(b'{"error":"out of tea"}\n'), "piece", 4)),
    ("chat, unknown", "graph", "refuses with another code", "refusal unknown_message code",
     fails_as(Refused(404, "no_message", "no message with this message_id is stored"))),
    ("chat, unknown", "legacy", "refuses with another status", "refusal unknown_message status",
     fails_as(Refused(410, "unknown_message", "no message with this message_id is stored"))),
    # Order that the flow does not allow
    ("session, plain", "graph", "thinks before it has opened a session", "grammar session_created",
     moves("session_created", "thinking")),
    ("companion, plain", "legacy", "shows the emotion behind a text", "grammar emotion",
     moves("emotion", "text")),
    ("chat, plain", "graph", "accepts twice", "grammar ACCEPT", doubles("ACCEPT")),
    # Events
    ("companion, plain", "graph", "shows no emotion", "event_missing emotion", drops("emotion")),
    ("session, long", "graph", "opens no session", "event_missing session_created",
     drops("session_created")),
    ("ops, plain", "graph", "tells no result", "event_missing result", drops("result")),
    ("ops, two steps", "graph", "tells one result of two", "event_missing result",
     drops("result", 2)),
    ("ops, plain", "legacy", "tells a result twice", "event_missing result", doubles("result")),
    ("completions", "graph", "sends no [DONE]", "event_missing [DONE]",
     says("data: [DONE]\n\n", "")),
    ("chat, two tools", "legacy", "is silent about a tool that runs", "event_added SEND",
     drops("SEND")),
    ("companion, two tools", "legacy", "tells no tool's result", "event_added tool_result",
     drops("tool_result", 2)),
    ("companion, plain", "graph", "tells of a tool that was not called", "event_added tool_result",
     adds(CompanionToolResult("search", ok=True, content="nothing"), "done")),
    ("ops, plain", "graph", "tells of progress", "event_added progress",
     adds(OpsProgress("network", "half done"), "result")),
    ("chat, two tools", "graph", "calls a tool's result an error",
     "event_changed SEND tool_call_feedback.status",
     sets("SEND", "tool_call_feedback.status", "error", 4)),
    ("companion, plain", "graph", "reads another emotion", "event_changed emotion primary",
     sets("emotion", "primary", "anger")),
    ("companion, plain", "legacy", "reads a weaker emotion", "event_changed emotion intensity",
     sets("emotion", "intensity", 0.25)),
    ("companion, two tools", "graph", "says that a tool failed", "event_changed tool_result ok",
     sets("tool_result", "ok", value=False, nth=2)),
    ("companion, asks", "graph", "asks by another title", "event_changed hitl form.title",
     sets("hitl", "form.title", "Which day?")),
    ("companion, asks", "legacy", "asks with another label",
     "event_changed hitl form.fields[].label", sets("hitl", "form.fields.0.label", "Weekday")),
    ("session, plain", "graph", "counts other tokens", "event_changed done data.usage.total_tokens",
     sets("done", "data.usage.total_tokens", 7)),
    ("session, plain", "legacy", "answers with an id that it did not store",
     "event_changed done data.final_message.id", sets("done", "data.final_message.id", "s")),
    ("pipeline, warned", "graph", "is within its limit", "event_changed message token_info.action",
     sets("message", "token_info.action", "continue")),
    ("pipeline, memories", "legacy", "finds a memory", "event_changed message memories[]",
     sets("message", "memories", ["m-1"])),
    ("pipeline, plain", "graph", "hears a goodbye", "event_changed message end_intent",
     sets("message", "end_intent", value=True)),
    ("ops, two steps", "legacy", "tells another port", "event_changed step args.port",
     sets("step", "args.port", 8080, 2)),
    ("ops, asks", "graph", "asks for approval of another risk",
     "event_changed approval_required risk", sets("approval_required", "risk", "critical")),
    ("ops, approved", "graph", "tells another end of what was approved",
     "event_changed result message", sets("result", "message", "it ran")),
    ("completions", "graph", "finishes for another reason",
     "event_changed chunk choices[].finish_reason",
     says('"finish_reason": "tool_calls"', '"finish_reason": "stop"')),
    ("lines", "legacy", "is done for another reason", "event_changed line done_reason",
     says('"done_reason":"stop"', '"done_reason":"length"')),
    ("ops, two steps", "graph", "tells both results at the end", "event_moved result",
     moves("result", "result")),
    ("companion, plain", "graph", "tells of a tool behind the text", "event_moved tool_result",
     moves("tool_result", "text")),
    # Text
    ("chat, plain", "graph", "says another word", "text text", says("84", "85")),
    ("chat, long", "legacy", "says it in other letters", "text text", says("é", "e\u0301")),
    ("companion, long", "legacy", "loses a piece", "text text", drops("text", 3)),
    ("session, plain", "graph", "adds a space", "text text", says("84.", "84. ")),
    ("ops, plain", "graph", "ends in other words", "text text",
     sets("final", "message", "It can be reached.")),
    ("completions", "legacy", "says another word", "text content", says("milk", "cream")),
    ("completions", "graph", "calls a tool with other arguments",
     "event_changed call arguments.item", says(r":\"tea", r":\"gin")),
    ("lines", "graph", "says it twice", "text content", doubles("piece", 2)),
    ("chat, plain", "graph", "drops the reasoning", "reasoning reasoning",
     edits("SEND", 0, _without_reasoning)),
    ("completions", "legacy", "drops the reasoning", "reasoning reasoning", drops("piece", 2)),
    ("completions", "graph", "says what a filter found",
     "annotation chunk choices[].content_filter_results.hate", says('"hate": 0', '"hate": 1')),
    # Time
    ("chat, long", "graph", "runs to its end, then streams", "held_back text", holds),
    ("companion, long", "legacy", "runs to its end, then streams", "held_back text", holds),
    ("session, long", "graph", "runs to its end, then streams", "held_back text", holds),
    ("pipeline, long", "legacy", "runs to its end, then streams", "held_back text", holds),
    ("pipeline, long", "graph", "says all in its last event", "held_back text", drops("token", 0)),
    ("lines", "legacy", "runs to its end, then streams", "held_back content", holds),
    # Calls of services
    ("completions", "graph", "does not order", "call_missing kitchen.order",
     lambda _: completing(counts=())),
    ("completions", "graph", "orders twice", "call_added kitchen.order",
     lambda _: completing(counts=(1, 1))),
    ("completions", "graph", "asks something else", "call_changed kitchen.ask question",
     lambda _: completing("Coffee, please.")),
    ("completions", "legacy", "orders two", "call_changed kitchen.order count",
     lambda _: completing(counts=(2,))),
)
_CODE: tuple[Code, ...] = (
    ("ops, plain", "graph", "judges a step otherwise", "event_changed step risk",
     has(GRAPH["ops"], "risk.risk_of", lambda _: "medium")),
    ("pipeline, warned", "legacy", "says nothing of its limit", "text text",
     returns(LEGACY["pipeline"], "text", lambda _: "")),
    # Calls of the world
    ("chat, plain", "graph", "does not run a tool", "call_missing tool.calculate",
     returns(GRAPH["flow"], "current", _calls(_from_memory))),
    ("chat, plain", "graph", "does not release the lock", "call_missing locks.release",
     has(GRAPH["chat"], "locks.release", _nothing)),
    ("chat, plain", "graph", "does not store the reply", "call_missing conversations.add",
     has(GRAPH["chat"], "conversations.add", _users_alone)),
    ("companion, plain", "graph", "remembers nothing", "call_missing store.search",
     has(GRAPH["companion"], "store_of", lambda _: _NoMemory())),
    ("companion, remembered", "graph", "does not keep what was approved", "call_missing store.put",
     has(GRAPH["companion"], "store_of", lambda _: _NoMemory())),
    ("session, plain", "graph", "does not learn", "call_missing conversations.history",
     has(GRAPH["session"], "_extract", _nothing)),
    ("pipeline, plain", "graph", "stores nothing", "call_missing clock.now",
     has(GRAPH["pipeline"], "_remember", _nothing)),
    ("pipeline, plain", "legacy", "looks for memories without need",
     "call_missing store.search", has(LEGACY["pipeline"], "needs_memory", lambda _: True)),
    ("ops, plain", "graph", "does not do what it tells", "call_missing worker.network.reach",
     has(GRAPH["ops"], "current", lambda: SimpleNamespace(workers=_Workers()))),
    ("ops, plain", "graph", "does not log", "call_missing audit.write",
     has(GRAPH["ops"], "_log", _nothing)),
    ("chat, plain", "graph", "runs a tool twice", "call_added tool.calculate",
     returns(GRAPH["flow"], "current", _calls(_twice))),
    ("chat, plain", "legacy", "does not store the reply", "call_added conversations.add",
     edited("chat", KEEP, "        pass\n")),
    ("chat, plain", "legacy", "does not release the lock", "call_added locks.release",
     edited("chat", RELEASE, "        pass\n")),
    ("pipeline, plain", "graph", "looks for memories without need", "call_added store.search",
     has(GRAPH["pipeline"], "intents.needs_memory", lambda _: True)),
    # What the model is asked
    ("chat, plain", "graph", "a word more in the graph's prompt",
     "call_changed model.chat messages[].content", returns(GRAPH["chat"], "prompt", _louder)),
    ("companion, plain", "legacy", "a word more in legacy's prompt",
     "call_changed model.chat messages[].content", returns(LEGACY["companion"], "render", _louder)),
    ("ops, two steps", "graph", "a word more in the graph's prompt",
     "call_changed model.chat messages[].content", returns(GRAPH["ops"], "prompt", _louder)),
    ("chat, plain", "legacy", "a colder model in legacy", "call_changed model.chat temperature",
     gets(LEGACY["chat"], "stream", temperature=0.2)),
    ("pipeline, plain", "graph", "a warmer model in the graph",
     "call_changed model.chat temperature", gets(GRAPH["pipeline"], "chat_model", temperature=1.5)),
    ("chat, plain", "graph", "a limit of tokens in the graph", "call_changed model.chat max_tokens",
     gets(GRAPH["chat"], "chat_model", max_tokens=500)),
    ("chat, long", "graph", "a tool less in the graph", "call_changed model.chat tools[]",
     returns(GRAPH["chat"], "langchain_tools", lambda tools: tools[:-1])),
    ("chat, history", "graph", "no history in the graph", "call_changed model.chat messages[]",
     returns(GRAPH["chat"], "window", lambda _: ())),
    ("session, known", "legacy", "legacy's history lacks its first turn",
     "call_changed model.chat messages[]",
     returns(LEGACY["session"], "window", lambda turns: turns[1:])),
    ("session, long", "graph", "another model in the graph", "call_changed model.chat model",
     returns(GRAPH["session"], "find_model", _another_model)),
    ("chat, plain", "graph", "tells the model another result",
     "call_changed model.chat messages[].content",
     returns(GRAPH["flow"], "current", _calls(_rounded))),
    ("chat, a tool that fails", "legacy", "names a tool's error otherwise",
     "call_changed model.chat messages[].content",
     returns(LEGACY["model"], "tool_error", str.lower)),
    # What else of the world is asked
    ("chat, plain", "graph", "runs a tool with other arguments",
     "call_changed tool.calculate expression",
     returns(GRAPH["flow"], "current", _calls(_with_spaces))),
    ("chat, plain", "legacy", "locks for another time", "call_changed locks.acquire seconds",
     has(LEGACY["chat"], "wire.LOCK_SECONDS", 30.0)),
    ("chat, history", "legacy", "reads a shorter history",
     "call_changed conversations.history limit", has(LEGACY["chat"], "CHAT_HISTORY", 10)),
    ("companion, plain", "graph", "looks for something else", "call_changed store.search query",
     has(GRAPH["companion"], "extraction.memory_query", lambda _: "anything")),
    ("companion, plain", "graph", "remembers for all users",
     "call_changed store.search namespace[]",
     returns(GRAPH["companion"], "_owner", lambda _: "everybody")),
    ("session, long", "graph", "recalls less", "call_changed store.search limit",
     has(GRAPH["session"], "extraction.RECALLED", 2)),
    ("session, plain", "legacy", "forgets the kind of a memory",
     "call_changed store.put value.type", has(LEGACY["session"], "Memory", _of_no_kind)),
    ("pipeline, memories", "graph", "looks for memories of no user",
     "call_changed store.search filter", returns(GRAPH["pipeline"], "store_of", _unfiltered)),
    ("pipeline, plain", "graph", "stores an empty reply",
     "call_changed conversations.add turn.content",
     has(GRAPH["pipeline"], "conversations.add", _unsaid)),
    ("ops, plain", "graph", "has another port reached", "call_changed worker.network.reach port",
     returns(GRAPH["ops"], "current", _other_workers)),
    ("ops, plain", "legacy", "logs another name", "call_changed audit.write entry.who",
     has(LEGACY["ops"], "risk.ASSISTANT", "no one")),
    # Order of writes
    ("chat, plain", "legacy", "releases the lock before it stores", "writes_moved locks.release",
     edited("chat", RELEASE, "        pass\n", NOW, f"{NOW}{RELEASE}")),
    ("session, plain", "legacy", "marks what it has read too early", "writes_moved store.put",
     edited("session", MARK, "", SEEN, f"{SEEN}{MARK}")),
)
# fmt: on


_STREAM_ROWS = [Row(*row[:2], row[3], stream=row[4]) for row in _STREAMS]
_ROWS = [*_STREAM_ROWS, *(Row(*row[:2], row[3], code=row[4]) for row in _CODE)]
ROWS: Mapping[str, Row] = {
    f"{exchange}: {stack} {what}": row
    for (exchange, stack, what, *_), row in zip((*_STREAMS, *_CODE), _ROWS, strict=True)
}
"""The rows by what is planted."""
