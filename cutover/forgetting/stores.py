"""Somebody's rows in the stores: turns of conversations, memories, pauses."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contract.errors import CutoverError, EffectFailed
from effects.conversations import SqliteConversations
from effects.conversations.turns import Forgotten
from effects.human import SqlitePauses
from effects.memory import SqliteMemory
from router.addresses import address

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from effects.whose import Whose
    from router.sections import Stores

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
    try:
        turns = await _turns(address(stores.conversations, environ), whose)
    except CutoverError as error:
        left.append(_sentence("conversations", error))
    try:
        memories = await _memories(address(stores.memory, environ), whose)
    except CutoverError as error:
        left.append(_sentence("memory", error))
    chats = turns.chats | ({whose.value} if whose.kind == "chat" else frozenset())
    # A pause of one message is found by its exchange: others of the chat are not concerned.
    sessions = frozenset[str]() if whose.kind == "message" else chats
    try:
        users = {whose.value} if whose.kind == "user" else set()
        pauses = await _pauses(address(stores.pauses, environ), exchanges, sessions, users)
    except CutoverError as error:
        left.append(_sentence("pauses", error))
    return ForgottenRows(turns.turns, memories, pauses, tuple(left), chats)


async def _turns(where: str, whose: Whose) -> Forgotten:
    scheme, _, rest = where.partition("://")
    match scheme:
        case "postgresql":
            adapter: Any = import_module("effects.conversations.postgres").PostgresConversations
            async with adapter.open(where) as kept:
                forgotten: Forgotten = await kept.forget(whose)
                return forgotten
        case "sqlite" if path := sqlite_there(rest):
            async with SqliteConversations.open(path) as conversations:
                return await conversations.forget(whose)
        case "http" | "https":
            raise KeptElsewhere
        case _:
            return _NOTHING


async def _memories(where: str, whose: Whose) -> int:
    """Remove memories; their vectors go with them, whoever made them."""
    scheme, _, rest = where.partition("://")
    match scheme:
        case "postgresql":
            adapter: Any = import_module("effects.memory.postgres").PostgresMemory
            async with adapter.open(where) as kept:
                forgotten: int = await kept.forget(whose)
                return forgotten
        case "sqlite" if path := sqlite_there(rest):
            async with SqliteMemory.open(path) as memory:
                return await memory.forget(whose)
        case _:
            return 0


async def _pauses(
    where: str, exchanges: Collection[str], sessions: Collection[str], users: Collection[str]
) -> int:
    """Remove pauses; what is sealed goes without its key."""
    scheme, _, rest = where.partition("://")
    match scheme:
        case "postgresql":
            adapter: Any = import_module("effects.human.postgres").PostgresPauses
            async with adapter.open_pool(where) as kept:
                removed: int = await kept.forget(exchanges, sessions, users)
                return removed
        case "sqlite" if path := sqlite_there(rest):
            async with SqlitePauses.open_file(path) as pauses:
                return await pauses.forget(exchanges, sessions, users)
        case _:
            return 0


def sqlite_there(rest: str) -> Path | None:
    """Give the path of `sqlite:///…`; None where there is no such file, and nothing in it."""
    path = Path(rest.removeprefix("/"))
    return path if path.exists() else None


def _sentence(part: str, error: CutoverError) -> str:
    why = error.fault.code if isinstance(error, EffectFailed) else str(error)
    return f"{part}: {why}"
