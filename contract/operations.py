"""Every operation a stack can perform on the world, as a table.

The tape needs no more than this to record, play and compare a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from contract import human, model, stores

Kind = Literal["read", "write", "instant"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a port.

    `kind`: a `read` dies with its exchange; a `write`, once started, runs to its deadline;
    an `instant` is answered on the spot, without a task. `tools.run` is a write unless its tool
    is declared read-only.
    """

    port: str
    name: str
    arguments: type[msgspec.Struct]
    item: type[msgspec.Struct]
    kind: Kind
    streams: bool = False

    @property
    def label(self) -> str:
        """`port.name`, as people and metrics call it."""
        return f"{self.port}.{self.name}"


MODEL_STREAM = Operation("model", "stream", model.ModelCall, model.Chunk, "read", streams=True)
MODEL_LOOKUP = Operation("model", "lookup", model.LookUp, model.ModelInfo, "instant")
TOOLS_LIST = Operation("tools", "list", model.NoArguments, model.OfferedTools, "read")
TOOLS_RUN = Operation("tools", "run", model.ToolCall, model.ToolResult, "write")
MEMORY_RECALL = Operation("memory", "recall", stores.Recall, stores.Memories, "read")
MEMORY_WRITE = Operation("memory", "write", stores.Remember, stores.Remembered, "write")
TURN_FIND = Operation("conversations", "find", stores.FindTurn, stores.FoundTurn, "read")
TURN_PUT = Operation("conversations", "put", stores.PutTurn, stores.StoredTurn, "write")
TURN_HISTORY = Operation("conversations", "history", stores.ReadHistory, stores.FoundTurns, "read")
LOCK_ACQUIRE = Operation("locks", "acquire", stores.Acquire, stores.Acquired, "write")
LOCK_RELEASE = Operation("locks", "release", stores.Release, stores.Released, "instant")
CLOCK_NOW = Operation("clock", "now", model.NoArguments, stores.ClockReading, "instant")
IDS_NEW = Operation("ids", "new", model.NoArguments, stores.NewId, "instant")
HUMAN_OPEN = Operation("human", "open", human.OpenQuestion, human.OpenedQuestion, "write")
HUMAN_ANSWER = Operation("human", "answer", human.AwaitAnswer, human.HumanAnswer, "read")

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    (operation.port, operation.name): operation
    for operation in (
        MODEL_STREAM,
        MODEL_LOOKUP,
        TOOLS_LIST,
        TOOLS_RUN,
        MEMORY_RECALL,
        MEMORY_WRITE,
        TURN_FIND,
        TURN_PUT,
        TURN_HISTORY,
        LOCK_ACQUIRE,
        LOCK_RELEASE,
        CLOCK_NOW,
        IDS_NEW,
        HUMAN_OPEN,
        HUMAN_ANSWER,
    )
}

WRITES = frozenset(
    operation.label for operation in OPERATIONS.values() if operation.kind == "write"
)
