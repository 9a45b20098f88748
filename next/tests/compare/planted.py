"""Planted faults: what is wrong in which stack, and the first cause that must be named for it.

Each cause is stated from what the fault is: its kind, the name of the event, effect or channel, the
place in it. Differences are read from legacy to graph, so an event that legacy drops is `added`.
The tables are two lines a row: what is planted; the exchange, the stack, the cause and the fault.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from compare.difference import Kind
from cutover import Event, Refused, Request, StackFailed
from cutover.wire import AnswerHead, Body, Piece
from effects import conversations
from effects.memory import Memory
from effects.workers import Result
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

Cause = tuple[Kind, str, str]
"""Kind, name and path of a difference."""


@dataclass(frozen=True, slots=True)
class Row:
    """A fault of one stack in an exchange, in its `code` or its `stream`, and its first cause."""

    exchange: str
    stack: Name
    cause: Cause
    stream: Change | None = None
    code: Mutation | None = None

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Put the fault into the stack, until the test ends."""
        if self.code is not None:
            self.code(patch)
        if self.stream is not None:
            found, flow = stacks(self.exchange, self.stack), self.exchange.partition(",")[0]
            patch.setitem(found, flow, self.stream(found[flow]))


LEGACY = {name: import_module(f"legacy.{name}") for name in ("chat", "companion", "ops")}
LEGACY |= {name: import_module(f"legacy.{name}") for name in ("model", "pipeline", "session")}
GRAPH = {name: import_module(f"graph_impl.{name}") for name in ("chat", "companion", "ops")}
GRAPH |= {name: import_module(f"graph_impl.{name}") for name in ("pipeline", "session", "tools")}


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
    yield Body(b'{"error":"nothing here"}')


REFUSED = "::1:1 cannot be reached: Connection refused"
NOW = "        now = await clock.now()\n"
RELEASE = "        await locks.release(lock, token)\n"
KEEP = "        await conversations.add(await _reply(turn, output.content, now))\n"
MARK = (
    '    await store.aput(readings(user_id), session_id, {"message": turns[-1].id}, index=False)\n'
)
SEEN = "    seen = {one.text for one in known}\n"

_HOLDS: dict[str, Name] = {
    **dict.fromkeys(("chat", "session"), "graph"),
    **dict.fromkeys(("companion", "pipeline"), "legacy"),
}
Streams = dict[str, tuple[str, Name, Kind, str, str, Change]]
Code = dict[str, tuple[str, Name, Kind, str, str, Mutation]]
# fmt: off
_STREAMS: Streams = {
    # How it ends
    "chat: the graph breaks in its text":
        ("chat, long", "graph", "outcome", "", "", ends("SEND", 4, ZeroDivisionError("planted"))),
    "companion: legacy stops before its last event":
        ("companion, plain", "legacy", "outcome", "", "", ends("done")),
    "pipeline: the graph breaks before its first event":
        ("pipeline, plain", "graph", "outcome", "", "", ends("*", 1, ZeroDivisionError("planted"))),
    "session: legacy breaks in its text":
        ("session, long", "legacy", "outcome", "", "",
         ends("text", 3, ZeroDivisionError("planted"))),
    "ops: the graph breaks behind a step":
        ("ops, two steps", "graph", "outcome", "", "",
         ends("result", 2, ZeroDivisionError("planted"))),
    "companion: the graph fails with another code":
        ("companion, fails", "graph", "outcome", "", "",
         fails_as(StackFailed("model_error", "world"))),
    "session: the graph refuses what legacy answers":
        ("session, plain", "graph", "outcome", "", "",
         ends("*", 1, Refused(404, "unknown_session"))),
    "completions: graph refuses what legacy answers":
        ("completions", "graph", "outcome", "", "", lambda _: _refusing),
    "lines: legacy reports a failure in its stream":
        ("lines", "legacy", "outcome", "", "",
         adds(Piece(b'{"error":"out of tea"}\n'), "piece", 4)),
    "chat: the graph refuses with another code":
        ("chat, unknown", "graph", "refusal", "unknown_message", "code",
         fails_as(Refused(404, "no_message", "no message with this message_id is stored"))),
    "chat: legacy refuses with another status":
        ("chat, unknown", "legacy", "refusal", "unknown_message", "status",
         fails_as(Refused(410, "unknown_message", "no message with this message_id is stored"))),
    # Order that the flow does not allow
    "session: the graph thinks before it has opened a session":
        ("session, plain", "graph", "grammar", "session_created", "",
         moves("session_created", "thinking")),
    "companion: legacy shows the emotion behind a text":
        ("companion, plain", "legacy", "grammar", "emotion", "", moves("emotion", "text")),
    "chat: the graph accepts twice":
        ("chat, plain", "graph", "grammar", "ACCEPT", "", doubles("ACCEPT")),
    # Events
    "companion: the graph shows no emotion":
        ("companion, plain", "graph", "event_missing", "emotion", "", drops("emotion")),
    "session: the graph opens no session":
        ("session, long", "graph", "event_missing", "session_created", "",
         drops("session_created")),
    "ops: the graph tells no result":
        ("ops, plain", "graph", "event_missing", "result", "", drops("result")),
    "ops: the graph tells one result of two":
        ("ops, two steps", "graph", "event_missing", "result", "", drops("result", 2)),
    "ops: legacy tells a result twice":
        ("ops, plain", "legacy", "event_missing", "result", "", doubles("result")),
    "completions: the graph sends no [DONE]":
        ("completions", "graph", "event_missing", "[DONE]", "", says("data: [DONE]\n\n", "")),
    "chat: legacy is silent about a tool that runs":
        ("chat, two tools", "legacy", "event_added", "SEND", "", drops("SEND")),
    "companion: legacy tells no tool's result":
        ("companion, two tools", "legacy", "event_added", "tool_result", "",
         drops("tool_result", 2)),
    "companion: the graph tells of a tool that nobody called":
        ("companion, plain", "graph", "event_added", "tool_result", "",
         adds(CompanionToolResult("search", ok=True, content="nothing"), "done")),
    "ops: the graph tells of progress":
        ("ops, plain", "graph", "event_added", "progress", "",
         adds(OpsProgress("network", "half done"), "result")),
    "chat: the graph calls a tool's result an error":
        ("chat, two tools", "graph", "event_changed", "SEND", "tool_call_feedback.status",
         sets("SEND", "tool_call_feedback.status", "error", 4)),
    "companion: the graph reads another emotion":
        ("companion, plain", "graph", "event_changed", "emotion", "primary",
         sets("emotion", "primary", "anger")),
    "companion: legacy reads a weaker emotion":
        ("companion, plain", "legacy", "event_changed", "emotion", "intensity",
         sets("emotion", "intensity", 0.25)),
    "companion: the graph says that a tool failed":
        ("companion, two tools", "graph", "event_changed", "tool_result", "ok",
         sets("tool_result", "ok", value=False, nth=2)),
    "companion: the graph asks by another title":
        ("companion, asks", "graph", "event_changed", "hitl", "form.title",
         sets("hitl", "form.title", "Which day?")),
    "companion: legacy asks with another label":
        ("companion, asks", "legacy", "event_changed", "hitl", "form.fields[].label",
         sets("hitl", "form.fields.0.label", "Weekday")),
    "session: the graph counts other tokens":
        ("session, plain", "graph", "event_changed", "done", "data.usage.total_tokens",
         sets("done", "data.usage.total_tokens", 7)),
    "session: legacy's answer has an id that nobody stored":
        ("session, plain", "legacy", "event_changed", "done", "data.final_message.id",
         sets("done", "data.final_message.id", "s")),
    "pipeline: the graph is over a limit":
        ("pipeline, warned", "graph", "event_changed", "message", "token_info.action",
         sets("message", "token_info.action", "continue")),
    "pipeline: legacy finds a memory":
        ("pipeline, memories", "legacy", "event_changed", "message", "memories[]",
         sets("message", "memories", ["m-1"])),
    "pipeline: the graph hears a goodbye":
        ("pipeline, plain", "graph", "event_changed", "message", "end_intent",
         sets("message", "end_intent", value=True)),
    "ops: legacy tells another port":
        ("ops, two steps", "legacy", "event_changed", "step", "args.port",
         sets("step", "args.port", 8080, 2)),
    "ops: the graph asks for approval of another risk":
        ("ops, asks", "graph", "event_changed", "approval_required", "risk",
         sets("approval_required", "risk", "critical")),
    "ops: what was approved ends otherwise in the graph":
        ("ops, approved", "graph", "event_changed", "result", "message",
         sets("result", "message", "it ran")),
    "completions: the graph finishes for another reason":
        ("completions", "graph", "event_changed", "chunk", "choices[].finish_reason",
         says('"finish_reason": "tool_calls"', '"finish_reason": "stop"')),
    "lines: legacy is done for another reason":
        ("lines", "legacy", "event_changed", "line", "done_reason",
         says('"done_reason":"stop"', '"done_reason":"length"')),
    "ops: the graph tells both results at the end":
        ("ops, two steps", "graph", "event_moved", "result", "", moves("result", "result")),
    "companion: the graph tells of a tool behind the text":
        ("companion, plain", "graph", "event_moved", "tool_result", "",
         moves("tool_result", "text")),
    # Text
    "chat: the graph says another word":
        ("chat, plain", "graph", "text", "text", "", says("84", "85")),
    "chat: legacy says it in other letters":
        ("chat, long", "legacy", "text", "text", "", says("é", "e\u0301")),
    "companion: legacy loses a piece":
        ("companion, long", "legacy", "text", "text", "", drops("text", 3)),
    "session: the graph adds a space":
        ("session, plain", "graph", "text", "text", "", says("84.", "84. ")),
    "ops: the graph ends in other words":
        ("ops, plain", "graph", "text", "text", "", sets("final", "message", "It can be reached.")),
    "completions: legacy says another word":
        ("completions", "legacy", "text", "content", "", says("milk", "cream")),
    "completions: the graph calls a tool with other arguments":
        ("completions", "graph", "event_changed", "call", "arguments.item",
         says(r":\"tea", r":\"gin")),
    "lines: the graph says it twice":
        ("lines", "graph", "text", "content", "", doubles("piece", 2)),
    "chat: the graph drops the reasoning":
        ("chat, plain", "graph", "reasoning", "reasoning", "",
         edits("SEND", 0, _without_reasoning)),
    "completions: legacy drops the reasoning":
        ("completions", "legacy", "reasoning", "reasoning", "", drops("piece", 2)),
    "completions: the graph says what a filter found":
        ("completions", "graph", "annotation", "chunk", "choices[].content_filter_results.hate",
         says('"hate": 0', '"hate": 1')),
    "pipeline: the graph says all in its last event":
        ("pipeline, long", "graph", "held_back", "text", "", drops("token", 0)),
    "lines: legacy runs to its end and then streams":
        ("lines", "legacy", "held_back", "content", "", holds),
    "completions: the graph does not order":
        ("completions", "graph", "call_missing", "kitchen.order", "",
         lambda _: completing(counts=())),
    "completions: the graph orders twice":
        ("completions", "graph", "call_added", "kitchen.order", "",
         lambda _: completing(counts=(1, 1))),
    "completions: the graph asks something else":
        ("completions", "graph", "call_changed", "kitchen.ask", "question",
         lambda _: completing("Coffee, please.")),
    "completions: legacy orders two":
        ("completions", "legacy", "call_changed", "kitchen.order", "count",
         lambda _: completing(counts=(2,))),
}
_CODE: Code = {
    "ops: the graph judges a step otherwise":
        ("ops, plain", "graph", "event_changed", "step", "risk",
         has(GRAPH["ops"], "risk.risk_of", lambda _: "medium")),
    "pipeline: legacy says nothing of its limit":
        ("pipeline, warned", "legacy", "text", "text", "",
         returns(LEGACY["pipeline"], "text", lambda _: "")),
    # Calls of the world
    "chat: the graph does not run a tool":
        ("chat, plain", "graph", "call_missing", "tool.calculate", "",
         returns(GRAPH["tools"], "current", _calls(_from_memory))),
    "chat: the graph does not release the lock":
        ("chat, plain", "graph", "call_missing", "locks.release", "",
         has(GRAPH["chat"], "locks.release", _nothing)),
    "chat: the graph does not store the reply":
        ("chat, plain", "graph", "call_missing", "conversations.add", "",
         has(GRAPH["chat"], "conversations.add", _users_alone)),
    "companion: the graph remembers nothing":
        ("companion, plain", "graph", "call_missing", "store.search", "",
         has(GRAPH["companion"], "store_of", lambda _: _NoMemory())),
    "companion: the graph does not keep what was approved":
        ("companion, remembered", "graph", "call_missing", "store.put", "",
         has(GRAPH["companion"], "store_of", lambda _: _NoMemory())),
    "session: the graph does not learn":
        ("session, plain", "graph", "call_missing", "conversations.history", "",
         has(GRAPH["session"], "_extract", _nothing)),
    "pipeline: the graph stores nothing":
        ("pipeline, plain", "graph", "call_missing", "clock.now", "",
         has(GRAPH["pipeline"], "_remember", _nothing)),
    "pipeline: legacy looks for memories that nobody needs":
        ("pipeline, plain", "legacy", "call_missing", "store.search", "",
         has(LEGACY["pipeline"], "needs_memory", lambda _: True)),
    "ops: the graph does not do what it tells":
        ("ops, plain", "graph", "call_missing", "worker.network.reach", "",
         has(GRAPH["ops"], "current", lambda: SimpleNamespace(workers=_Workers()))),
    "ops: the graph does not log":
        ("ops, plain", "graph", "call_missing", "audit.write", "",
         has(GRAPH["ops"], "_log", _nothing)),
    "chat: the graph runs a tool twice":
        ("chat, plain", "graph", "call_added", "tool.calculate", "",
         returns(GRAPH["tools"], "current", _calls(_twice))),
    "chat: legacy does not store the reply":
        ("chat, plain", "legacy", "call_added", "conversations.add", "",
         edited("chat", KEEP, KEEP.replace("conversations.add(await _reply", "(_reply"))),
    "chat: legacy does not release the lock":
        ("chat, plain", "legacy", "call_added", "locks.release", "",
         edited("chat", RELEASE, "        pass\n")),
    "pipeline: the graph looks for memories that nobody needs":
        ("pipeline, plain", "graph", "call_added", "store.search", "",
         has(GRAPH["pipeline"], "intents.needs_memory", lambda _: True)),
    # What the model is asked
    "chat: a word more in the graph's prompt":
        ("chat, plain", "graph", "call_changed", "model.chat", "messages[].content",
         returns(GRAPH["chat"], "prompt", _louder)),
    "companion: a word more in legacy's prompt":
        ("companion, plain", "legacy", "call_changed", "model.chat", "messages[].content",
         returns(LEGACY["companion"], "render", _louder)),
    "ops: a word more in the graph's prompt":
        ("ops, two steps", "graph", "call_changed", "model.chat", "messages[].content",
         returns(GRAPH["ops"], "prompt", _louder)),
    "chat: a colder model in legacy":
        ("chat, plain", "legacy", "call_changed", "model.chat", "temperature",
         gets(LEGACY["chat"], "stream", temperature=0.2)),
    "pipeline: a warmer model in the graph":
        ("pipeline, plain", "graph", "call_changed", "model.chat", "temperature",
         gets(GRAPH["pipeline"], "chat_model", temperature=1.5)),
    "chat: a limit of tokens in the graph":
        ("chat, plain", "graph", "call_changed", "model.chat", "max_tokens",
         gets(GRAPH["chat"], "chat_model", max_tokens=500)),
    "chat: a tool less in the graph":
        ("chat, long", "graph", "call_changed", "model.chat", "tools[]",
         returns(GRAPH["chat"], "langchain_tools", lambda tools: tools[:-1])),
    "chat: no history in the graph":
        ("chat, history", "graph", "call_changed", "model.chat", "messages[]",
         returns(GRAPH["chat"], "window", lambda _: ())),
    "session: legacy's history lacks its first turn":
        ("session, known", "legacy", "call_changed", "model.chat", "messages[]",
         returns(LEGACY["session"], "window", lambda turns: turns[1:])),
    "session: another model in the graph":
        ("session, long", "graph", "call_changed", "model.chat", "model",
         returns(GRAPH["session"], "find_model", _another_model)),
    "chat: the graph tells the model another result":
        ("chat, plain", "graph", "call_changed", "model.chat", "messages[].content",
         returns(GRAPH["tools"], "current", _calls(_rounded))),
    "chat: legacy names a tool's error otherwise":
        ("chat, a tool that fails", "legacy", "call_changed", "model.chat", "messages[].content",
         returns(LEGACY["model"], "tool_error", str.lower)),
    # What else of the world is asked
    "chat: the graph runs a tool with other arguments":
        ("chat, plain", "graph", "call_changed", "tool.calculate", "expression",
         returns(GRAPH["tools"], "current", _calls(_with_spaces))),
    "chat: legacy locks for another time":
        ("chat, plain", "legacy", "call_changed", "locks.acquire", "seconds",
         has(LEGACY["chat"], "wire.LOCK_SECONDS", 30.0)),
    "chat: legacy reads a shorter history":
        ("chat, history", "legacy", "call_changed", "conversations.history", "limit",
         has(LEGACY["chat"], "CHAT_HISTORY", 10)),
    "companion: the graph looks for something else":
        ("companion, plain", "graph", "call_changed", "store.search", "query",
         has(GRAPH["companion"], "extraction.memory_query", lambda _: "anything")),
    "companion: the graph remembers for all users":
        ("companion, plain", "graph", "call_changed", "store.search", "namespace[]",
         returns(GRAPH["companion"], "_owner", lambda _: "everybody")),
    "session: the graph recalls less":
        ("session, long", "graph", "call_changed", "store.search", "limit",
         has(GRAPH["session"], "extraction.RECALLED", 2)),
    "session: legacy forgets the kind of a memory":
        ("session, plain", "legacy", "call_changed", "store.put", "value.type",
         has(LEGACY["session"], "Memory", _of_no_kind)),
    "pipeline: the graph looks for memories of nobody":
        ("pipeline, memories", "graph", "call_changed", "store.search", "filter",
         returns(GRAPH["pipeline"], "store_of", _unfiltered)),
    "pipeline: the graph stores an empty reply":
        ("pipeline, plain", "graph", "call_changed", "conversations.add", "turn.content",
         has(GRAPH["pipeline"], "conversations.add", _unsaid)),
    "ops: the graph has another port reached":
        ("ops, plain", "graph", "call_changed", "worker.network.reach", "port",
         returns(GRAPH["ops"], "current", _other_workers)),
    "ops: legacy logs another name":
        ("ops, plain", "legacy", "call_changed", "audit.write", "entry.who",
         has(LEGACY["ops"], "risk.ASSISTANT", "nobody")),
    # Order of writes
    "chat: legacy releases the lock before it stores":
        ("chat, plain", "legacy", "writes_moved", "locks.release", "",
         edited("chat", RELEASE, "        pass\n", NOW, f"{NOW}{RELEASE}")),
    "session: legacy marks what it has read too early":
        ("session, plain", "legacy", "writes_moved", "store.put", "",
         edited("session", MARK, "", SEEN, f"{SEEN}{MARK}")),
}
# fmt: on
_HELD: Streams = {
    f"{flow}: {stack} runs to its end": (f"{flow}, long", stack, "held_back", "text", "", holds)
    for flow, stack in _HOLDS.items()
}
ROWS: Mapping[str, Row] = {
    **{
        name: Row(exchange, stack, (kind, event, path), stream=fault)
        for name, (exchange, stack, kind, event, path, fault) in {**_STREAMS, **_HELD}.items()
    },
    **{
        name: Row(exchange, stack, (kind, effect, path), code=fault)
        for name, (exchange, stack, kind, effect, path, fault) in _CODE.items()
    },
}
"""The rows, by what is planted."""
