"""The ports: the only way a stack reaches the world.

Every method takes a *site*, a short label of the place in the flow where the call stands. All of
them may raise `Fenced` (the run was replaced), `TapeCut` (the exchange ended), `TapeMiss` (a run
on a recorded tape made a call that is not on it) and, where something can go wrong
outside, `EffectFailed` with the fault that is on the tape.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from contract.external import ExternalCall, ExternalUpdate
from contract.human import HumanAnswer, OpenQuestion
from contract.model import Chunk, ModelCall, ModelInfo, ToolCall, ToolResult, ToolSpec
from contract.stores import (
    FindNear,
    MemoryEntry,
    NearEntries,
    Reading,
    Recall,
    Revision,
    Turn,
)
from contract.workers import AuditEntry, WorkerCall, WorkerUpdate


class Model(Protocol):
    """A language model."""

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Ask the model; yield its chunks as they arrive."""
        ...

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Look up a registered model; fault `unknown_model` if there is none."""
        ...

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count the tokens of each text as the model does; None where its tokenizer is not at hand.

        Fault `unknown_model`.
        """
        ...


class Tools(Protocol):
    """The tools a model may call."""

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """List the tools that can be offered now."""
        ...

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run one call; an error of the tool is in the result, not raised."""
        ...


class Memory(Protocol):
    """Long-term memory of users."""

    async def recall(self, site: str, query: Recall) -> tuple[MemoryEntry, ...]:
        """Find memories, best first."""
        ...

    async def near(self, site: str, query: FindNear) -> NearEntries:
        """Find memories near each of several texts, and how near they are."""
        ...

    async def progress(self, site: str, reading: Reading) -> str | None:
        """Return the message up to which a conversation has been read for memories."""
        ...

    async def write(
        self, site: str, entries: tuple[MemoryEntry, ...], revision: Revision | None = None
    ) -> int:
        """Store memories; returns how many entries were new.

        A `revision` removes others, and notes up to where a conversation has been read; the fault
        `READ_MEANWHILE` if it has been read further since. The same write made again, by the ids of
        its entries or by its revision, changes nothing and returns what the first one did.
        """
        ...


class Conversations(Protocol):
    """The store of turns both stacks share."""

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        ...

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; storing an equal one again is fine, False when the id is taken."""
        ...

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns of a chat that came before a message, oldest first."""
        ...


class Locks(Protocol):
    """Locks with an owner, renewed while the exchange lives."""

    async def acquire(self, site: str, key: str, ttl: float) -> bool:
        """Try to take a lock, never wait; `ttl` in seconds."""
        ...

    async def release(self, site: str, key: str) -> None:
        """Mark the lock as no longer needed; the exchange releases it when it ends."""
        ...


class Clock(Protocol):
    """The wall clock."""

    async def now(self, site: str) -> datetime:
        """Return the time, aware, in UTC."""
        ...


class Ids(Protocol):
    """Fresh identifiers."""

    async def new(self, site: str) -> str:
        """Return an identifier that was never used."""
        ...


class Human(Protocol):
    """A person who answers questions."""

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store a question, and the tape so far, before it is shown; returns its id."""
        ...

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer; raises `Paused` while there is none."""
        ...


class Workers(Protocol):
    """Workers that carry out instructions: the machine, the network, containers, releases."""

    def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
        """Carry out one instruction; yield its progress as it comes and, last, its result.

        The stream is closed at its result: only `finally` and `with` blocks run then. What the
        worker could not do is in the result, not raised. Fault `worker_unavailable`.
        """
        ...


class Audit(Protocol):
    """The log of what was asked of workers, decided and done; it is only appended to."""

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Append an entry; the same one appended again, by its id, is there once.

        Fault `audit_unavailable`: it is not known to be in the log.
        """
        ...


class External(Protocol):
    """What a stack does to the world itself: the site names the effect, the caller carries it out.

    Fault `effect_in_doubt`: it has begun, and nobody said what came of it. How an effect itself
    failed is in its result, not raised.
    """

    def read(self, site: str, call: ExternalCall) -> AsyncIterator[ExternalUpdate]:
        """Read something: it dies with its exchange, and may be read again."""
        ...

    def run(self, site: str, call: ExternalCall) -> AsyncIterator[ExternalUpdate]:
        """Change something, at most once."""
        ...


class Trace(Protocol):
    """Times the nodes of a stack and notes what they change; not an effect, never on the tape.

    A node's time is that in which it is open: waiting is included, for an effect, for a human who
    answers at once, and for the client to take what the node sends. Of nodes that run side by side
    each counts in full. A node that opens several times counts the sum.
    """

    def node(self, name: str) -> AbstractContextManager[None]:
        """Time one node; both stacks of a flow do the same work in nodes of the same name."""
        ...

    def changed(self, node: str, update: object) -> None:
        """Note what a node of a graph returns for its state: a mapping, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Effects:
    """The ports of one run.

    A `rehearsal` serves no client: what a stack stores of its own, beside the ports, must not
    touch what it stores for served ones.
    """

    model: Model
    tools: Tools
    memory: Memory
    conversations: Conversations
    locks: Locks
    clock: Clock
    ids: Ids
    human: Human
    workers: Workers
    audit: Audit
    external: External
    trace: Trace
    rehearsal: bool = False
