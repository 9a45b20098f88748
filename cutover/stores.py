"""Stores and locks from their addresses: opened, or only checked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from contract.errors import CutoverError
from contract.ports import Audit, Memory
from cutover.wiring.periodic import sweeping
from effects import memory
from effects.memory.sqlite import MEMORY
from effects.model import Secret
from effects.stores import (
    ConversationStore,
    Encryption,
    HealthCheck,
    HttpConversations,
    LeasedLocks,
    Leases,
    MemoryConversations,
    MemoryPauses,
    MemoryPins,
    MemoryWriteJournal,
    PauseStore,
    PinStore,
    Plaintext,
    ProcessLocks,
    SharedState,
    SqlAudit,
    SqlConversations,
    SqlLeases,
    SqlPauses,
    SqlPins,
    SqlSharedState,
    SqlWriteJournal,
    WriteJournal,
    read_keys,
)
from effects.stores.database import SqlStore
from effects.stores.sqlite import check_file
from effects.stores.tables import (
    AUDIT_LOG,
    CONVERSATIONS,
    LEASES,
    PAUSE_STORE,
    PIN_STORE,
    SHARED_STATE,
    Schema,
)
from effects.workers import MemoryAudit
from router.admin.history import HISTORY
from router.config.addresses import read_secret

if TYPE_CHECKING:
    from effects.memory.embeddings import Embedder
    from router.config.schema import ConversationSettings, PauseSettings

Locks: TypeAlias = ProcessLocks | LeasedLocks

_SHARED: Final = ("process", "sqlite", "redis", "rediss")
SCHEMES: Final = {
    "conversations": ("memory", "sqlite", "http", "https", "postgresql"),
    "memory": ("memory", "sqlite", "postgresql"),
    "pauses": ("memory", "sqlite", "postgresql"),
    "audit": ("memory", "sqlite", "postgresql"),
    "locks": _SHARED,
    "pins": _SHARED,
    "shared_state": _SHARED,
}
"""Where each store can be."""

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "conversations": CONVERSATIONS,
    "memory": MEMORY,
    "pauses": PAUSE_STORE,
    "audit": AUDIT_LOG,
    "locks": LEASES,
    "pins": PIN_STORE,
    "shared_state": SHARED_STATE,
    "history": HISTORY,
}


class NoSuchStore(CutoverError):
    """An address names a kind of store that cannot hold this."""

    def __init__(self, what: str, scheme: str) -> None:
        known = ", ".join(SCHEMES[what])
        super().__init__(f"{what} cannot be kept in {scheme!r}; known are {known}")


async def open_conversations(
    address: str, stack: AsyncExitStack, token: str = ""
) -> ConversationStore:
    """Open the store of conversations, closed with `stack`; a service gets the bearer `token`."""
    match _scheme("conversations", address):
        case "memory":
            return MemoryConversations()
        case "http" | "https":
            return await stack.enter_async_context(HttpConversations.open(address, token=token))
        case _:
            return await stack.enter_async_context(SqlConversations.open(address))


def conversations_token(section: ConversationSettings, environ: Mapping[str, str]) -> str:
    """Return the bearer token of a service that stores conversations, "" without one.

    Raises `ConfigRefused` for a variable that is not set, `KeyUnusable` for what is no token.
    """
    return Secret(read_secret(section.token_env, environ).decode()).reveal()


async def open_memory(
    address: str, stack: AsyncExitStack, embedder: Embedder | None = None, least: float = 0.0
) -> Memory:
    """Open the long-term memory, closed with `stack`; with an embedder it finds by vectors."""
    if _scheme("memory", address) == "memory":
        return memory.InMemoryMemory()
    return await stack.enter_async_context(memory.open_memory(address, embedder, least=least))


async def open_pauses(address: str, stack: AsyncExitStack, encryption: Encryption) -> PauseStore:
    """Open the store of pauses, closed with `stack`; as long as it is open, it is swept."""
    pauses: PauseStore
    if _scheme("pauses", address) == "memory":
        pauses = MemoryPauses()
    else:
        opened = SqlPauses.open_store(address, encryption=encryption)
        pauses = await stack.enter_async_context(opened)
    await stack.enter_async_context(sweeping(pauses))
    return pauses


async def open_audit(address: str, stack: AsyncExitStack) -> Audit:
    """Open the log of what workers were told to do; it is closed with `stack`."""
    if _scheme("audit", address) == "memory":
        return MemoryAudit()
    return await stack.enter_async_context(SqlAudit.open(address))


async def open_write_journal(address: str, stack: AsyncExitStack) -> WriteJournal:
    """Open the journal of exchanges' writes, where the pauses are; it is closed with `stack`."""
    if _scheme("pauses", address) == "memory":
        return MemoryWriteJournal()
    return await stack.enter_async_context(SqlWriteJournal.open(address))


def pause_encryption(section: PauseSettings, environ: Mapping[str, str]) -> Encryption:
    """Return what encrypts pauses; raises `InvalidKeys`, and `MissingExtra` without its library."""
    if not section.key_env:
        return Plaintext()
    keys = read_keys(environ.get(section.key_env, ""), section.key_env)
    adapter = _extra("effects.stores.pauses.aes", "AesEncryption")
    encryption: Encryption = adapter(keys, strict=section.strict)
    return encryption


async def open_locks(address: str, stack: AsyncExitStack) -> Locks:
    """Open the locks, closed with `stack`; each exchange gets its own owner."""
    leases: Leases | None = await _open_shared("locks", address, stack, SqlLeases, "RedisLeases")
    locks: Locks = ProcessLocks() if leases is None else LeasedLocks.over(leases)
    stack.push_async_callback(locks.aclose)
    return locks


async def open_pins(address: str, stack: AsyncExitStack) -> PinStore:
    """Open the store of pins; it is closed with `stack`."""
    pins: PinStore | None = await _open_shared("pins", address, stack, SqlPins, "RedisPins")
    return pins or MemoryPins()


async def open_shared_state(address: str, stack: AsyncExitStack) -> SharedState | None:
    """Open the state routers share, closed with `stack`; None where they share none."""
    state: SharedState | None = await _open_shared(
        "shared_state", address, stack, SqlSharedState, "RedisSharedState"
    )
    return state


async def _open_shared(
    what: str, address: str, stack: AsyncExitStack, file: type[SqlStore], redis: str
) -> Any:
    """Open what routers share, closed with `stack`; None where it is in the process."""
    match _scheme(what, address):
        case "process":
            return None
        case "sqlite":
            return await stack.enter_async_context(file.open(address))
        case _:
            store = _extra("effects.stores.redis", redis)(address)
            stack.push_async_callback(store.aclose)
            return store


def check_store_file(what: str, path: Path) -> HealthCheck:
    """Check an existing file as the router would open it; nothing is made or changed."""
    return check_file(path, _SCHEMAS.get(what))


async def check_server(what: str, url: str) -> HealthCheck | None:
    """Check a database or a Redis; None where it did not answer, or is neither."""
    scheme = url.partition("://")[0]
    check: HealthCheck | None
    try:
        if scheme == "postgresql":
            if what == "memory":
                schema = _extra("effects.memory.postgres", "MEMORY")
            else:
                schema = _SCHEMAS.get(what)
            check = await _extra("effects.stores.postgres", "check_database")(url, schema)
        elif scheme in {"redis", "rediss"}:
            check = await _extra("effects.stores.redis", "check_redis")(url)
        else:
            check = None
    except CutoverError as error:
        return HealthCheck(ok=False, detail=str(error))
    except ValueError:  # its text may hold a piece of a password
        return None
    return check


def _scheme(what: str, address: str) -> str:
    scheme = address.partition("://")[0]
    if scheme not in SCHEMES[what]:
        raise NoSuchStore(what, scheme)
    return scheme


def _extra(module: str, name: str) -> Any:
    """Import what needs the library of an extra; raises `MissingExtra`."""
    return getattr(import_module(module), name)
