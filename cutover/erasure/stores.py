"""Somebody's rows in the stores: turns of conversations, memories, pauses."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from contract.errors import CutoverError, EffectFailed
from effects.memory import SqliteMemory
from effects.stores import SqliteConversations, SqlitePauses
from effects.stores.turns import ErasedTurns
from router.config import resolve_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
    from contextlib import AbstractAsyncContextManager

    from effects.stores.values import DataSubject
    from router.config import StoreSettings

Removed = TypeVar("Removed")
Store = TypeVar("Store")
_NOTHING = ErasedTurns(0, frozenset())


class KeptElsewhere(CutoverError):
    """A service keeps the conversations, and its port knows no forgetting."""

    def __init__(self) -> None:
        super().__init__("kept by a service, which has to be asked itself")


class ForgottenRows(NamedTuple):
    """What was removed from the stores, None where that failed, and why it did: sentences.

    `chats` are those concerned, what is a copy of them is outdated; not `all_chats` where those
    that hold the turns could not be asked.
    """

    turns: int | None
    memories: int | None
    pauses: int | None
    left: tuple[str, ...]
    chats: frozenset[str]
    all_chats: bool


async def forget_rows(
    stores: StoreSettings,
    environ: Mapping[str, str],
    whose: DataSubject,
    exchanges: Collection[str],
) -> ForgottenRows:
    """Remove somebody's rows; pauses are the user's own, of these exchanges, of chats concerned.

    A store that fails does not keep the others from being told.
    """
    left: list[str] = []
    turns = await _tried(left, "conversations", _turns(stores, environ, whose))
    memories = await _tried(left, "memory", _memories(stores, environ, whose))
    chats = (turns or _NOTHING).chats | ({whose.value} if whose.kind == "chat" else frozenset())
    # A pause of one message is found by its exchange: others of the chat are not concerned.
    sessions = frozenset[str]() if whose.kind == "message" else chats
    users = {whose.value} if whose.kind == "user" else set[str]()
    sought = exchanges, sessions, users
    pauses = await _tried(left, "pauses", _pauses(stores, environ, *sought))
    removed = turns.turns if turns else None
    all_chats = turns is not None or whose.kind == "chat"
    return ForgottenRows(removed, memories, pauses, tuple(left), chats, all_chats)


async def _turns(
    stores: StoreSettings, environ: Mapping[str, str], whose: DataSubject
) -> ErasedTurns:
    database = "effects.stores.postgres_conversations:PostgresConversations.open"
    where = resolve_address(stores.conversations, environ)
    async with _opened(where, SqliteConversations.open, database) as conversations:
        return await conversations.forget(whose) if conversations is not None else _NOTHING


async def _memories(stores: StoreSettings, environ: Mapping[str, str], whose: DataSubject) -> int:
    """Remove memories; their vectors go with them, whoever made them."""
    database = "effects.memory.postgres:PostgresMemory.open"
    where = resolve_address(stores.memory, environ)
    async with _opened(where, SqliteMemory.open, database) as memory:
        return await memory.forget(whose) if memory is not None else 0


async def _pauses(
    stores: StoreSettings,
    environ: Mapping[str, str],
    exchanges: Collection[str],
    sessions: Collection[str],
    users: Collection[str],
) -> int:
    """Remove pauses; what is sealed goes without its key."""
    database = "effects.stores.pauses.postgres:PostgresPauses.open_pool"
    where = resolve_address(stores.pauses, environ)
    async with _opened(where, SqlitePauses.open_file, database) as pauses:
        return await pauses.forget(exchanges, sessions, users) if pauses is not None else 0


@asynccontextmanager
async def _opened(
    where: str, file: Callable[[Path], AbstractAsyncContextManager[Store]], database: str
) -> AsyncIterator[Store | None]:
    """Open a store where it is kept; None where nothing is. `database` names what opens one.

    Raises `KeptElsewhere`.
    """
    scheme, _, rest = where.partition("://")
    match scheme:
        case "postgresql":  # by its name: its library is an extra
            async with resolve_name(database)(where) as store:
                yield store
        case "sqlite" if path := sqlite_there(rest):
            async with file(path) as store:
                yield store
        case "http" | "https":
            raise KeptElsewhere
        case _:
            yield None


def sqlite_there(rest: str) -> Path | None:
    """Give the path of `sqlite:///…`; None where there is no such file, and nothing in it."""
    path = Path(rest.removeprefix("/"))
    return path if path.exists() else None


async def _tried(left: list[str], part: str, forgetting: Awaitable[Removed]) -> Removed | None:
    """Turn what keeps a store from forgetting into a sentence."""
    try:
        return await forgetting
    except CutoverError as error:
        left.append(f"{part}: {reason(error)}")
        return None


def reason(error: CutoverError) -> str:
    """Say why a store did not forget."""
    if not isinstance(error, EffectFailed):
        return str(error)
    code = error.fault.code
    return f"the store cannot be reached ({code})" if code.endswith("_unavailable") else code
