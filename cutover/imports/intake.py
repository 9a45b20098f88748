"""The intake: shaped rows into a store, a batch at a time; what was not stored, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from contract.errors import CutoverError, EffectFailed
from contract.stores import MemoryEntry, Turn
from cutover.imports.shapes import LeftOut, Place, Rejected, Shaped, Value
from cutover.wiring.models import open_embedder
from effects.memory import open_entries
from effects.stores import SqlConversations
from router.capture.redaction import Redactor
from router.config.addresses import resolve_address
from router.config.patterns import compile_patterns
from router.config.schema import EmbeddingSettings, Settings

BATCH: Final = 512
"""Rows in one transaction."""
SHOWN: Final = 5

_TEXTS: Final = ("content", "user_name", "data", "text")
"""What is redacted; by ids rows are found again, and erased."""


class Stored(NamedTuple):
    """What became of a batch: how many values are new, and why some were refused; others are known.

    Those refused are named by their numbers in the batch. `without_vectors` are new.
    """

    new: int
    refused: Mapping[int, str] = {}
    without_vectors: int = 0


Put: TypeAlias = Callable[[Sequence[Value]], Awaitable[Stored]]


class NoLastingStore(CutoverError):
    """A store keeps nothing, or belongs to a service."""

    def __init__(self, name: str, scheme: str) -> None:
        super().__init__(
            f"[stores] {name} is {scheme}://…: rows are imported into sqlite:///… or "
            "postgresql://…; a service that stores conversations has to take them in itself"
        )


class NoPseudonymKey(CutoverError):
    """Redaction would be different at each import."""

    def __init__(self) -> None:
        super().__init__(
            "[imports] redact takes the key of pseudonyms: name its variable in "
            "[captures] pseudonym_key_env, and set it"
        )


class ImportStopped(CutoverError):
    """The store failed; `stored` rows are in it."""

    def __init__(self, code: str, stored: int) -> None:
        super().__init__(
            f"the store failed ({code}); {stored} rows are in it, and are found again: "
            "repeat the command"
        )


@dataclass(slots=True)
class ImportTally:
    """What an import has come to: rows by what became of them, and the first reasons."""

    new: int = 0
    known: int = 0
    rejected: int = 0
    without_vectors: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)

    @property
    def read(self) -> int:
        """How many rows were read."""
        return self.new + self.known + self.rejected + self.left_out.total()


async def take_in(
    items: Iterable[tuple[Place, Shaped[Value]]],
    opening: AbstractAsyncContextManager[Put[Value]],
    tally: ImportTally,
    rejects: IO[bytes] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Store what can be, in its order; `rejects` gets a JSON line for each row that cannot.

    Calls `progress` after each batch. Raises `ImportStopped`, and what opening and reading raise;
    whole batches are stored by then.
    """
    remaining = iter(items)
    try:
        async with opening as put:
            while batch := list(islice(remaining, BATCH)):
                for place, reason in await _take_in_batch(batch, put, tally):
                    tally.rejected += 1
                    if len(tally.reasons) < SHOWN:
                        tally.reasons.append(f"{place}: {reason}")
                    if rejects is not None:
                        line = msgspec.json.encode({"line": place, "reason": reason})
                        rejects.write(line + b"\n")
                progress()
    except EffectFailed as failed:
        raise ImportStopped(failed.fault.code, tally.new + tally.known) from failed


async def _take_in_batch(
    batch: Iterable[tuple[Place, Shaped[Value]]], put: Put[Value], tally: ImportTally
) -> list[tuple[Place, str]]:
    """Store the values of a batch; returns which rows are not stored, and why."""
    values: list[Value] = []
    places: list[Place] = []
    refused: list[tuple[Place, str]] = []
    for place, shaped in batch:
        match shaped:
            case LeftOut(why):
                tally.left_out[why] += 1
            case Rejected(reason):
                refused.append((place, reason))
            case value:
                places.append(place)
                values.append(value)
    stored = await put(values)
    tally.new += stored.new
    tally.without_vectors += stored.without_vectors
    tally.known += len(values) - stored.new - len(stored.refused)
    return refused + [(places[at], reason) for at, reason in stored.refused.items()]


@asynccontextmanager
async def open_nothing(show: Callable[[Value], None]) -> AsyncIterator[Put[Value]]:
    """Store nothing, and count what could be; `show` gets the first values."""
    shown = 0

    async def put(values: Sequence[Value]) -> Stored:
        nonlocal shown
        for value in values[: max(SHOWN - shown, 0)]:
            show(value)
            shown += 1
        return Stored(len(values))

    yield put


def lasting_store(
    name: Literal["conversations", "memory"], settings: Settings, environ: Mapping[str, str]
) -> str:
    """Return the address of a store; raises `NoLastingStore` where it is no database."""
    place = resolve_address(getattr(settings.stores, name), environ)
    scheme = place.partition("://")[0]
    if scheme not in {"sqlite", "postgresql"}:
        raise NoLastingStore(name, scheme)
    return place


@asynccontextmanager
async def open_turns(place: str, flow: str) -> AsyncIterator[Put[Turn]]:
    """Open the conversations of a flow; raises what opening the store does."""
    async with SqlConversations.open(place) as store:
        conversations = store.of(flow)

        async def put(turns: Sequence[Turn]) -> Stored:
            results = await conversations.put_all(turns)
            taken = {
                at: f"message_id: {turns[at].message_id!r} belongs to another turn"
                for at, result in enumerate(results)
                if result == "taken"
            }
            return Stored(results.count("new"), taken)

        yield put


@asynccontextmanager
async def open_memories(
    place: str, embeddings: EmbeddingSettings, environ: Mapping[str, str]
) -> AsyncIterator[Put[MemoryEntry]]:
    """Open the long-term memory, with its embedder; raises what opening both does."""
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(embeddings, environ, stack)
        store = await stack.enter_async_context(open_entries(place, embedder))

        async def put(entries: Sequence[MemoryEntry]) -> Stored:
            new, taken = await store.add_imported(entries)
            refused = {
                at: f"memory_id: {entries[at].memory_id!r} belongs to another memory"
                for at in taken
            }
            without = 0
            if new and store.embedder is not None:
                try:
                    await store.keep(new, await store.embedder.embed([one.text for one in new]))
                except EffectFailed:
                    # They wait, as after a failure in a router, and routers make them.
                    without = len(new)
            return Stored(len(new), refused, without)

        yield put


def redaction(settings: Settings, environ: Mapping[str, str]) -> Callable[[Value], Value]:
    """Return what redacts texts as captures do, ids excepted, where `[imports] redact` is set.

    Raises `NoPseudonymKey`.
    """
    if not settings.imports.redact:
        return lambda value: value
    captures = settings.captures
    key = environ.get(captures.pseudonym_key_env, "").encode()
    if not key:
        raise NoPseudonymKey
    patterns = compile_patterns(captures.redact.patterns)
    redactor = Redactor(patterns, captures.redact.paths, key)

    def redact(value: Value) -> Value:
        if isinstance(value, Turn):
            found = redactor.arguments("conversations", "put", {"turn": value})["turn"]
        else:
            found = redactor.arguments("memory", "write", {"entries": [value]})["entries"][0]
        return replace(value, **{name: found[name] for name in _TEXTS if name in found})

    return redact
