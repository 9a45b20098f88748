"""Somebody's rows in the stores: turns of conversations, memories, pauses."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from contract.errors import CutoverError, EffectFailed
from effects.conversations import SqliteConversations
from effects.conversations.turns import Forgotten
from effects.human import SqlitePauses
from effects.memory import SqliteMemory
from router.addresses import address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from effects.whose import Whose
    from router.sections import Stores

Store = TypeVar("Store")
_NOTHING = Forgotten(0, frozenset())


class KeptElsewhere(CutoverError):
    """A service keeps the conversations, and its port knows no forgetting."""

    def __init__(self) -> None:
        super().__init__("kept by a service, which has to be asked itself")


class ForgottenRows(NamedTuple):
    """What was removed from the stores, and what could not be: sentences.

    `chats` are those concerned: what is a copy of them is outdated.
    """

    turns: int
    memories: int
    pauses: int
    left: tuple[str, ...]
    chats: frozenset[str]


async def forget_rows(
    stores: Stores, environ: Mapping[str, str], whose: Whose, exchanges: Collection[str]
) -> ForgottenRows:
    """Remove somebody's rows; pauses are the user's own, of these exchanges, of chats concerned.

    A store that fails does not keep the others from being told.
    """
    left: list[str] = []
    turns, memories, pauses = _NOTHING, 0, 0
    with _telling(left, "conversations"):
        turns = await _turns(address(stores.conversations, environ), whose)
    with _telling(left, "memory"):
        memories = await _memories(address(stores.memory, environ), whose)
    chats = turns.chats | ({whose.value} if whose.kind == "chat" else frozenset())
    # A pause of one message is found by its exchange: others of the chat are not concerned.
    sessions = frozenset[str]() if whose.kind == "message" else chats
    with _telling(left, "pauses"):
        users = {whose.value} if whose.kind == "user" else set()
        pauses = await _pauses(address(stores.pauses, environ), exchanges, sessions, users)
    return ForgottenRows(turns.turns, memories, pauses, tuple(left), chats)


async def _turns(where: str, whose: Whose) -> Forgotten:
    database = "effects.conversations.postgres:PostgresConversations.open"
    async with _opened(where, SqliteConversations.open, database) as conversations:
        return await conversations.forget(whose) if conversations is not None else _NOTHING


async def _memories(where: str, whose: Whose) -> int:
    """Remove memories; their vectors go with them, whoever made them."""
    database = "effects.memory.postgres:PostgresMemory.open"
    async with _opened(where, SqliteMemory.open, database) as memory:
        return await memory.forget(whose) if memory is not None else 0


async def _pauses(
    where: str, exchanges: Collection[str], sessions: Collection[str], users: Collection[str]
) -> int:
    """Remove pauses; what is sealed goes without its key."""
    database = "effects.human.postgres:PostgresPauses.open_pool"
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


@contextmanager
def _telling(left: list[str], part: str) -> Iterator[None]:
    """Turn what keeps a store from forgetting into a sentence."""
    try:
        yield
    except CutoverError as error:
        why = error.fault.code if isinstance(error, EffectFailed) else str(error)
        left.append(f"{part}: {why}")
