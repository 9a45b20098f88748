"""Examining a store: it is looked into as the router would open it, and nothing is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from effects.board import sqlite as boards
from effects.conversations import sqlite as conversations
from effects.human import sqlite as pauses
from effects.locks import sqlite as locks
from effects.looks import Look, look_into_file
from effects.memory import sqlite as memories
from effects.pins import sqlite as pins
from router import history

if TYPE_CHECKING:
    from pathlib import Path

_FILES = {
    "conversations": conversations,
    "memory": memories,
    "pauses": pauses,
    "locks": locks,
    "pins": pins,
    "board": boards,
    "history": history,
}
_DATABASES = {
    "conversations": "effects.conversations.postgres",
    "memory": "effects.memory.postgres",
    "pauses": "effects.human.postgres",
}


def looked_into_file(what: str, path: Path) -> Look:
    """Look into a file that is there."""
    tables = _FILES.get(what)
    return look_into_file(path, what, len(tables.MIGRATIONS) if tables else 0)


async def looked_into_server(what: str, url: str) -> Look | None:
    """Look into a database or a Redis; None where nobody said anything, or it is neither."""
    scheme = url.partition("://")[0]
    try:
        if scheme == "postgresql":
            known = len(_named(_DATABASES[what]).STEPS) if what in _DATABASES else 0
            look = _named("effects.postgres_look").look_into_database(url, what, known)
        elif scheme in {"redis", "rediss"}:
            look = _named("effects.redis_look").look_into_redis(url)
        else:
            return None
        found: Look | None = await look
    except CutoverError as error:
        return Look(good=False, said=str(error))
    except ValueError:  # its text may hold a piece of a password
        return None
    return found


def _named(module: str) -> Any:
    return import_module(module)
