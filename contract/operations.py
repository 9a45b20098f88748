"""Every operation a stack can perform on the world, as a table.

An operation is one method of a port. What the tape records, plays and compares, the ports a run
gets, and the calls on the live ports all follow from its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from contract.external import IN_DOUBT, ExternalCall, ExternalError, ExternalResult, ExternalUpdate
from contract.human import AwaitAnswer, HumanAnswer, OpenedQuestion, OpenQuestion
from contract.model import (
    Chunk,
    CountTokens,
    LookUp,
    ModelCall,
    ModelInfo,
    NoArguments,
    OfferedTools,
    TokenCounts,
    ToolCall,
    ToolResult,
)
from contract.stores import (
    Acquire,
    Acquired,
    ClockReading,
    FindNear,
    FindTurn,
    FoundTurn,
    FoundTurns,
    Memories,
    NearEntries,
    NewId,
    Progress,
    PutTurn,
    ReadHistory,
    Reading,
    Recall,
    Release,
    Released,
    Remember,
    Remembered,
    StoredTurn,
)
from contract.workers import Audited, AuditEntry, WorkerCall, WorkerResult, WorkerUpdate

Kind = Literal["read", "write", "instant"]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation of a port.

    `kind`: a `read` dies with its exchange; a `write`, once started, runs to its deadline;
    an `instant` is answered on the spot, without a task. `tools.run` is a write unless its tool
    is declared read-only. `idempotent`: a write that may be made again where its result was lost;
    of one with `names` its port declares that by tool, or by worker and action; of one that is
    `keyed`, the call itself, by a value in that argument.

    A call with a `last` ends with its result: the one item whose attribute `last` is not None.
    Items before it are read as they come; the result, of any write, once it is journalled.

    `unknown` is what a write results in that had begun, and whose result was lost: it is not made
    again. `names` are the arguments that name what is run, in logs, journal and traces; of one that
    is `sited` its site does.

    `order` is what readers of stores and streams rely on, and what is compared: a `lasting` effect
    can be seen from elsewhere, and keeps its order with all of these and with the frames that end a
    stream or show a question; a `store` read keeps its order with what lasts in its port's store.
    Calls without one may run side by side.

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
    idempotent: bool = False
    whole: bool = False
    named: tuple[str, ...] = ()
    result: str | None = ""
    wrap: Callable[[Any], msgspec.Struct] | None = None
    order: Literal["", "lasting", "store"] = ""
    last: str = ""
    unknown: msgspec.Struct | None = None
    names: tuple[str, ...] = ()
    sited: bool = False
    keyed: str = ""

    label: str = field(init=False)
    """`port.name`, the label in metrics and reports."""
    stamped: bool = field(init=False)
    """Whether its items carry the moment of their arrival, as `at`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.port}.{self.name}")
        object.__setattr__(self, "stamped", "at" in self.item.__struct_fields__)

    def subject(self, args: bytes, site: str = "") -> str:
        """Name what a call runs, from its encoded arguments: a tool, a worker's action; or "".

        With its `site` also the effect that a stack performs itself.
        """
        if self.sited:
            return site
        if not self.names:
            return ""
        call = msgspec.json.decode(args, type=self.arguments)
        return ".".join(getattr(call, name) for name in self.names)

    def call_name(self, args: bytes, site: str) -> str:
        """Name a call: the label and, where it has one, its subject."""
        return f"{self.label} {self.subject(args, site)}".rstrip()


MODEL_STREAM: Final = Operation(
    "model", "stream", ModelCall, Chunk, "read", streams=True, whole=True
)
MODEL_LOOKUP: Final = Operation("model", "lookup", LookUp, ModelInfo, "instant")
MODEL_COUNT: Final = Operation("model", "count", CountTokens, TokenCounts, "read", result="tokens")
TOOLS_LIST: Final = Operation("tools", "list", NoArguments, OfferedTools, "read", result="tools")
TOOLS_RUN: Final = Operation(
    "tools",
    "run",
    ToolCall,
    ToolResult,
    "write",
    whole=True,
    order="lasting",
    unknown=ToolResult(error="outcome_unknown"),
    names=("name",),
)
MEMORY_RECALL: Final = Operation(
    "memory", "recall", Recall, Memories, "read", whole=True, result="entries", order="store"
)
MEMORY_NEAR: Final = Operation(
    "memory", "near", FindNear, NearEntries, "read", whole=True, order="store"
)
MEMORY_PROGRESS: Final = Operation(
    "memory",
    "progress",
    Reading,
    Progress,
    "read",
    whole=True,
    result="message_id",
    order="store",
)
MEMORY_WRITE: Final = Operation(
    "memory",
    "write",
    Remember,
    Remembered,
    "write",
    idempotent=True,
    result="written",
    order="lasting",
)
TURN_FIND: Final = Operation(
    "conversations", "find", FindTurn, FoundTurn, "read", result="turn", order="store"
)
TURN_PUT: Final = Operation(
    "conversations",
    "put",
    PutTurn,
    StoredTurn,
    "write",
    idempotent=True,
    result="ok",
    order="lasting",
)
TURN_HISTORY: Final = Operation(
    "conversations",
    "history",
    ReadHistory,
    FoundTurns,
    "read",
    named=("before", "limit"),
    result="turns",
    order="store",
)
LOCK_ACQUIRE: Final = Operation(
    "locks", "acquire", Acquire, Acquired, "write", idempotent=True, result="held", order="lasting"
)
LOCK_RELEASE: Final = Operation(
    "locks", "release", Release, Released, "instant", result=None, order="lasting"
)
CLOCK_NOW: Final = Operation(
    "clock", "now", NoArguments, ClockReading, "instant", result="moment", wrap=ClockReading.of
)
IDS_NEW: Final = Operation("ids", "new", NoArguments, NewId, "instant", result="id")
# A question whose id was lost has been shown to no client: it is asked again, under another one.
HUMAN_OPEN: Final = Operation(
    "human",
    "open",
    OpenQuestion,
    OpenedQuestion,
    "write",
    idempotent=True,
    whole=True,
    result="hitl_id",
    order="lasting",
)
HUMAN_ANSWER: Final = Operation("human", "answer", AwaitAnswer, HumanAnswer, "read")
WORKERS_RUN: Final = Operation(
    "workers",
    "run",
    WorkerCall,
    WorkerUpdate,
    "write",
    streams=True,
    whole=True,
    order="lasting",
    last="result",
    unknown=WorkerUpdate(result=WorkerResult(ok=False, message="", code="outcome_unknown")),
    names=("worker", "action"),
)
AUDIT_APPEND: Final = Operation(
    "audit",
    "append",
    AuditEntry,
    Audited,
    "write",
    idempotent=True,
    whole=True,
    result=None,
    order="lasting",
)
EXTERNAL_READ: Final = Operation(
    "external",
    "read",
    ExternalCall,
    ExternalUpdate,
    "read",
    streams=True,
    whole=True,
    last="result",
)
EXTERNAL_RUN: Final = Operation(
    "external",
    "run",
    ExternalCall,
    ExternalUpdate,
    "write",
    streams=True,
    whole=True,
    order="lasting",
    last="result",
    unknown=ExternalUpdate(result=ExternalResult(error=ExternalError(IN_DOUBT))),
    sited=True,
    keyed="key",
)

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    (row.port, row.name): row for row in tuple(globals().values()) if isinstance(row, Operation)
}


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """Seconds from the moment a write begins to its deadline: `seconds`, if nothing else is set.

    `operations` are by label, `tools` by the name of the tool that `tools.run` runs: that tool's
    calls have at least so long.
    """

    seconds: float = 30.0
    operations: Mapping[str, float] = field(default_factory=dict)
    tools: Mapping[str, float] = field(default_factory=dict)

    def of(self, operation: Operation, args: bytes) -> float:
        """Return the seconds that a call may take, from its encoded arguments."""
        seconds = self.operations.get(operation.label, self.seconds)
        if self.tools and operation is TOOLS_RUN:
            seconds = max(seconds, self.tools.get(operation.subject(args), 0.0))
        return seconds

    @property
    def longest(self) -> float:
        """The seconds that no write may exceed."""
        return max((self.seconds, *self.operations.values(), *self.tools.values()))


LASTING: Final = frozenset(row.label for row in OPERATIONS.values() if row.order == "lasting")
STORE_READS: Final = frozenset(row.label for row in OPERATIONS.values() if row.order == "store")
WRITES: Final = frozenset(row.label for row in OPERATIONS.values() if row.kind == "write")
