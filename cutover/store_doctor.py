"""Examining a store: it is looked into as the router would open it, and nothing is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from effects.memory.sqlite import MIGRATIONS as MEMORY
from effects.stores.conversations import MIGRATIONS as CONVERSATIONS
from effects.stores.health import HealthCheck, check_file
from effects.stores.locks import LOCK_MIGRATIONS
from effects.stores.pauses.sqlite import MIGRATIONS as PAUSES
from effects.stores.shared_state import PIN_MIGRATIONS, SHARED_STATE_MIGRATIONS
from router.admin.history import MIGRATIONS as HISTORY

if TYPE_CHECKING:
    from pathlib import Path

_FILES = {
    "conversations": CONVERSATIONS,
    "memory": MEMORY,
    "pauses": PAUSES,
    "locks": LOCK_MIGRATIONS,
    "pins": PIN_MIGRATIONS,
    "board": SHARED_STATE_MIGRATIONS,
    "history": HISTORY,
}
_DATABASES = {
    "conversations": "effects.stores.postgres_conversations",
    "memory": "effects.memory.postgres",
    "pauses": "effects.stores.pauses.postgres",
}


def looked_into_file(what: str, path: Path) -> HealthCheck:
    """Look into a file that is there."""
    tables = _FILES.get(what)
    return check_file(path, what, len(tables) if tables else 0)


async def looked_into_server(what: str, url: str) -> HealthCheck | None:
    """Look into a database or a Redis; None where nobody said anything, or it is neither."""
    scheme = url.partition("://")[0]
    try:
        if scheme == "postgresql":
            known = len(_named(_DATABASES[what]).STEPS) if what in _DATABASES else 0
            look = _named("effects.stores.postgres").check_database(url, what, known)
        elif scheme in {"redis", "rediss"}:
            look = _named("effects.stores.redis").check_redis(url)
        else:
            return None
        found: HealthCheck | None = await look
    except CutoverError as error:
        return HealthCheck(ok=False, detail=str(error))
    except ValueError:  # its text may hold a piece of a password
        return None
    return found


def _named(module: str) -> Any:
    return import_module(module)
