"""Stores and locks from their addresses."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from contract.errors import CutoverError
from cutover.wiring.periodic import sweeping
from effects.memory import InMemoryMemory, SqliteMemory
from effects.stores import (
    HttpConversations,
    MemoryConversations,
    MemoryPauses,
    MemoryPins,
    Plaintext,
    ProcessLocks,
    ResilientLocks,
    SqliteConversations,
    SqliteLeases,
    SqlitePauses,
    SqlitePins,
    SqliteSharedState,
    read_keys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AsyncExitStack

    from contract.ports import Conversations, Memory
    from effects.memory.embeddings import Embedder
    from effects.stores import Encryption, Leases, PauseStore, PinStore, SharedState
    from router.config import PauseSettings

Locks: TypeAlias = ProcessLocks | ResilientLocks

CONVERSATIONS = "conversations"
MEMORY = "memory"
PAUSES = "pauses"
LOCKS = "locks"
PINS = "pins"
BOARD = "board"
SCHEMES = {
    CONVERSATIONS: ("memory", "sqlite", "http", "https", "postgresql"),
    MEMORY: ("memory", "sqlite", "postgresql"),
    PAUSES: ("memory", "sqlite", "postgresql"),
    LOCKS: ("process", "sqlite", "redis", "rediss"),
    PINS: ("process", "sqlite", "redis", "rediss"),
    BOARD: ("process", "sqlite", "redis", "rediss"),
}
"""In what each can be kept."""


class NoSuchStore(CutoverError):
    """An address names a kind of store that cannot keep this."""

    def __init__(self, what: str, scheme: str) -> None:
        known = ", ".join(SCHEMES[what])
        super().__init__(f"{what} cannot be kept in {scheme!r}; known are {known}")


async def open_conversations(address: str, stack: AsyncExitStack) -> Conversations:
    """Open the store of conversations; it is closed with `stack`."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "memory":
            return MemoryConversations()
        case "sqlite":
            return await stack.enter_async_context(SqliteConversations.open(sqlite_file(rest)))
        case "http" | "https":
            return await stack.enter_async_context(HttpConversations.open(address))
        case "postgresql":
            adapter = _extra("effects.stores.postgres_conversations", "PostgresConversations")
            opened: Conversations = await stack.enter_async_context(adapter.open(address))
            return opened
        case _:
            raise NoSuchStore(CONVERSATIONS, scheme)


async def open_memory(
    address: str, stack: AsyncExitStack, embedder: Embedder | None = None, least: float = 0.0
) -> Memory:
    """Open the long-term memory, closed with `stack`; with an embedder it finds by vectors."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "memory":
            return InMemoryMemory()
        case "sqlite":
            file = SqliteMemory.open(sqlite_file(rest), embedder, least=least)
            return await stack.enter_async_context(file)
        case "postgresql":
            adapter = _extra("effects.memory.postgres", "PostgresMemory")
            opened: Memory = await stack.enter_async_context(
                adapter.open(address, embedder, least=least)
            )
            return opened
        case _:
            raise NoSuchStore(MEMORY, scheme)


async def open_pauses(address: str, stack: AsyncExitStack, sealing: Encryption) -> PauseStore:
    """Open the store of pauses, closed with `stack`; as long as it is open, it is swept."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "memory":
            pauses: PauseStore = MemoryPauses()
        case "sqlite":
            file = sqlite_file(rest)
            pauses = await stack.enter_async_context(SqlitePauses.open_file(file, sealing=sealing))
        case "postgresql":
            adapter = _extra("effects.stores.pauses.postgres", "PostgresPauses")
            pauses = await stack.enter_async_context(adapter.open_pool(address, sealing=sealing))
        case _:
            raise NoSuchStore(PAUSES, scheme)
    await stack.enter_async_context(sweeping(pauses))
    return pauses


def pauses_sealing(section: PauseSettings, environ: Mapping[str, str]) -> Encryption:
    """Give what seals pauses; raises `KeysUnusable`, and `MissingExtra` without the library."""
    if not section.key_env:
        return Plaintext()
    keys = read_keys(environ.get(section.key_env, ""), section.key_env)
    seals: Encryption = _extra("effects.stores.pauses.aes", "AesEncryption")(
        keys, strict=section.strict
    )
    return seals


async def open_locks(address: str, stack: AsyncExitStack) -> Locks:
    """Open the locks, closed with `stack`; each exchange gets its own owner."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "process":
            locks: Locks = ProcessLocks()
        case "sqlite":
            leases: Leases = await stack.enter_async_context(SqliteLeases.open(sqlite_file(rest)))
            locks = ResilientLocks.over(leases, time.monotonic)
        case "redis" | "rediss":
            leases = _extra("effects.stores.redis", "RedisLeases")(address)
            locks = ResilientLocks.over(leases, time.monotonic)
        case _:
            raise NoSuchStore(LOCKS, scheme)
    stack.push_async_callback(locks.aclose)
    return locks


async def open_pins(address: str, stack: AsyncExitStack) -> PinStore:
    """Open the store of pins; it is closed with `stack`."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "process":
            return MemoryPins()
        case "sqlite":
            return await stack.enter_async_context(SqlitePins.open(sqlite_file(rest)))
        case "redis" | "rediss":
            pins: PinStore = _extra("effects.stores.redis", "RedisPins")(address)
            stack.push_async_callback(pins.aclose)
            return pins
        case _:
            raise NoSuchStore(PINS, scheme)


async def open_board(address: str, stack: AsyncExitStack) -> SharedState | None:
    """Open the board routers share, closed with `stack`; None where they share none."""
    scheme, _, rest = address.partition("://")
    match scheme:
        case "process":
            return None
        case "sqlite":
            return await stack.enter_async_context(SqliteSharedState.open(sqlite_file(rest)))
        case "redis" | "rediss":
            board: SharedState = _extra("effects.stores.redis", "RedisSharedState")(address)
            stack.push_async_callback(board.aclose)
            return board
        case _:
            raise NoSuchStore(BOARD, scheme)


def sqlite_file(rest: str) -> Path:
    """Give the path of `sqlite:///relative` or `sqlite:////absolute`, its folder made."""
    path = Path(rest.removeprefix("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _extra(module: str, name: str) -> Any:
    """Import an adapter whose library is an extra; raises `MissingExtra`."""
    return getattr(import_module(module), name)
