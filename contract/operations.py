"""Every operation a stack can perform on the world, as a table.

An operation is one method of a port. What the tape records, plays and compares, the ports a run
gets, and the calls on the live ports all follow from its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from contract import human, model, stores

Kind = Literal["read", "write", "instant"]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation of a port.

    `kind`: a `read` dies with its exchange; a `write`, once started, runs to its deadline;
    an `instant` is answered on the spot, without a task. `tools.run` is a write unless its tool
    is declared read-only.

    The method takes a site and the fields of `arguments`, those in `named` by name only, or, if
    `whole`, the struct itself. It returns the attribute `result` of `item`: empty for the item
    itself, None for nothing. `wrap` makes an item of what it returns, where `item` does not.
    """

    port: str
    name: str
    arguments: type[msgspec.Struct]
    item: type[msgspec.Struct]
    kind: Kind
    streams: bool = False
    whole: bool = False
    named: tuple[str, ...] = ()
    result: str | None = ""
    wrap: Callable[[Any], msgspec.Struct] | None = None

    @property
    def label(self) -> str:
        """`port.name`, the label in metrics and reports."""
        return f"{self.port}.{self.name}"


MODEL_STREAM: Final = Operation(
    "model", "stream", model.ModelCall, model.Chunk, "read", streams=True, whole=True
)
MODEL_LOOKUP: Final = Operation("model", "lookup", model.LookUp, model.ModelInfo, "instant")
TOOLS_LIST: Final = Operation(
    "tools", "list", model.NoArguments, model.OfferedTools, "read", result="tools"
)
TOOLS_RUN: Final = Operation("tools", "run", model.ToolCall, model.ToolResult, "write", whole=True)
MEMORY_RECALL: Final = Operation(
    "memory", "recall", stores.Recall, stores.Memories, "read", whole=True, result="entries"
)
MEMORY_WRITE: Final = Operation(
    "memory", "write", stores.Remember, stores.Remembered, "write", result="written"
)
TURN_FIND: Final = Operation(
    "conversations", "find", stores.FindTurn, stores.FoundTurn, "read", result="turn"
)
TURN_PUT: Final = Operation(
    "conversations", "put", stores.PutTurn, stores.StoredTurn, "write", result="ok"
)
TURN_HISTORY: Final = Operation(
    "conversations",
    "history",
    stores.ReadHistory,
    stores.FoundTurns,
    "read",
    named=("before", "limit"),
    result="turns",
)
LOCK_ACQUIRE: Final = Operation(
    "locks", "acquire", stores.Acquire, stores.Acquired, "write", result="held"
)
LOCK_RELEASE: Final = Operation(
    "locks", "release", stores.Release, stores.Released, "instant", result=None
)
CLOCK_NOW: Final = Operation(
    "clock",
    "now",
    model.NoArguments,
    stores.ClockReading,
    "instant",
    result="moment",
    wrap=stores.ClockReading.of,
)
IDS_NEW: Final = Operation("ids", "new", model.NoArguments, stores.NewId, "instant", result="id")
HUMAN_OPEN: Final = Operation(
    "human",
    "open",
    human.OpenQuestion,
    human.OpenedQuestion,
    "write",
    whole=True,
    result="hitl_id",
)
HUMAN_ANSWER: Final = Operation("human", "answer", human.AwaitAnswer, human.HumanAnswer, "read")

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
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

WRITES: Final = frozenset(
    operation.label for operation in OPERATIONS.values() if operation.kind == "write"
)
