"""The ports a stack gets: every call goes through its run to the tape."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from contract import operations as ops
from contract.human import AwaitAnswer
from contract.model import LookUp, NoArguments
from contract.ports import Effects
from contract.stores import Acquire, FindTurn, PutTurn, ReadHistory, Release, Remember, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from contract.human import HumanAnswer, OpenQuestion
    from contract.model import Chunk, ModelCall, ModelInfo, ToolCall, ToolResult, ToolSpec
    from contract.operations import Operation
    from contract.stores import MemoryEntry, Recall

    Call = Callable[[Operation, str, Any], Awaitable[Any]]
    Stream = Callable[[Operation, str, Any], AsyncIterator[Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ARGUMENTS = NoArguments()


class _Port:
    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call


class TapedModel:
    """The model port of a run."""

    __slots__ = ("_call", "_stream")

    def __init__(self, call: Call, stream: Stream) -> None:
        self._call = call
        self._stream = stream

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Ask the model."""
        return self._stream(ops.MODEL_STREAM, site, call)

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell what is registered under an id."""
        info: ModelInfo = await self._call(ops.MODEL_LOOKUP, site, LookUp(model_id))
        return info


class TapedTools(_Port):
    """The tools port of a run."""

    __slots__ = ()

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """Tell which tools can be offered."""
        offered = await self._call(ops.TOOLS_LIST, site, _NO_ARGUMENTS)
        tools: tuple[ToolSpec, ...] = offered.tools
        return tools

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run one call."""
        result: ToolResult = await self._call(ops.TOOLS_RUN, site, call)
        return result


class TapedMemory(_Port):
    """The memory port of a run."""

    __slots__ = ()

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find what is remembered."""
        memories = await self._call(ops.MEMORY_RECALL, site, query)
        entries: tuple[MemoryEntry, ...] = memories.entries
        return entries

    async def write(self, site: str, entries: tuple[MemoryEntry, ...]) -> int:
        """Remember."""
        remembered = await self._call(ops.MEMORY_WRITE, site, Remember(entries))
        written: int = remembered.written
        return written


class TapedConversations(_Port):
    """The conversations port of a run."""

    __slots__ = ()

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up."""
        found = await self._call(ops.TURN_FIND, site, FindTurn(message_id))
        turn: Turn | None = found.turn
        return turn

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn."""
        stored = await self._call(ops.TURN_PUT, site, PutTurn(turn))
        return bool(stored.ok)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read earlier turns."""
        turns = await self._call(ops.TURN_HISTORY, site, ReadHistory(chat_id, before, limit))
        read: tuple[Turn, ...] = turns.turns
        return read


class TapedLocks(_Port):
    """The locks port of a run."""

    __slots__ = ()

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Try to take a lock."""
        acquired = await self._call(ops.LOCK_ACQUIRE, site, Acquire(key, ttl))
        return bool(acquired.held)

    async def release(self, site: str, key: str) -> None:
        """Say that a lock is no longer needed."""
        await self._call(ops.LOCK_RELEASE, site, Release(key))


class TapedClock(_Port):
    """The clock of a run."""

    __slots__ = ()

    async def now(self, site: str) -> datetime:
        """Tell the time."""
        moment = await self._call(ops.CLOCK_NOW, site, _NO_ARGUMENTS)
        return _EPOCH + timedelta(microseconds=moment.us)


class TapedIds(_Port):
    """The ids of a run."""

    __slots__ = ()

    async def new(self, site: str) -> str:
        """Make an identifier."""
        fresh = await self._call(ops.IDS_NEW, site, _NO_ARGUMENTS)
        return str(fresh.id)


class TapedHuman(_Port):
    """The human port of a run."""

    __slots__ = ()

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store a question."""
        opened = await self._call(ops.HUMAN_OPEN, site, question)
        return str(opened.hitl_id)

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer, or pause."""
        answer: HumanAnswer = await self._call(ops.HUMAN_ANSWER, site, AwaitAnswer(hitl_id))
        return answer


class NodeTimes:
    """Collects how long a run's nodes took, in microseconds, summed by name."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    @contextmanager
    def node(self, name: str) -> Iterator[None]:
        """Time one node."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            took = (time.perf_counter_ns() - began) // 1000
            self.spent[name] = self.spent.get(name, 0) + took


def taped(call: Call, stream: Stream, trace: NodeTimes, *, rehearsal: bool = False) -> Effects:
    """Bundle the ports of one run."""
    return Effects(
        model=TapedModel(call, stream),
        tools=TapedTools(call),
        memory=TapedMemory(call),
        conversations=TapedConversations(call),
        locks=TapedLocks(call),
        clock=TapedClock(call),
        ids=TapedIds(call),
        human=TapedHuman(call),
        trace=trace,
        rehearsal=rehearsal,
    )
