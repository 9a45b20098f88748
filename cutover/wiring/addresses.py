"""What the workers of one host share: stores that all reach, decided before any is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from contract.errors import CutoverError
from router.config import AUTO, PROCESS, resolve_address
from router.parts import exchange_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import StoreSettings
    from router.gateway import Neighbours

_KEPT = ("conversations", "memory", "pauses")
_COORDINATING = ("locks", "pins")
_BOARD = "board"
_COPIES = "checkpoints"
_IN_MEMORY = "memory://"


class NotShared(CutoverError):
    """Several workers were asked for, and a store would be each worker's own."""

    def __init__(self, workers: int, name: str, value: str, instead: str) -> None:
        super().__init__(
            f"{workers} workers cannot share [stores] {name} = {value!r}; use {instead}"
        )


@dataclass(frozen=True, slots=True)
class Crew:
    """How many routers share this host's stores, and how their gateways find each other."""

    workers: int = 1
    neighbours: Neighbours | None = None

    def exchange_id(self) -> str:
        """Make an id for an exchange, from which the others know whose it is."""
        return self.neighbours.exchange_id() if self.neighbours else exchange_id()


ALONE: Final = Crew()


def shared(stores: StoreSettings, environ: Mapping[str, str], workers: int) -> StoreSettings:
    """Give the addresses of the stores, variables looked up and `auto` decided.

    For one worker `auto` is `process`, for several the SQLite file of the other stores; for the
    board it is where the locks are. Raises `NotShared`, and `ConfigRefused` for a variable that is
    not set.
    """
    names = (*_KEPT, *_COORDINATING, _BOARD, _COPIES)
    found = {name: resolve_address(getattr(stores, name), environ) for name in names}
    found[_COPIES] = beside(found["conversations"], found[_COPIES])
    if workers > 1:
        for name in (*_KEPT, _COPIES):
            if found[name] == _IN_MEMORY:
                raise NotShared(workers, name, found[name], "sqlite:///…")
    common = _common(found, workers)
    for name in _COORDINATING:
        if found[name] == AUTO:
            found[name] = common
        if found[name] == PROCESS and workers > 1:
            given = getattr(stores, name)
            raise NotShared(workers, name, given, "sqlite:///… or redis://…")
    if found[_BOARD] == AUTO:
        found[_BOARD] = found["locks"]
    return msgspec.structs.replace(stores, **found)


def beside(conversations: str, checkpoints: str) -> str:
    """Give where stacks keep copies of conversations: `auto` is beside them.

    In a file of its own, since another library opens it; nowhere where a service keeps the turns:
    whoever deletes them there could not reach the copies.
    """
    scheme, _, rest = conversations.partition("://")
    if checkpoints != AUTO:
        return checkpoints
    if scheme == "sqlite":
        folder, slash, _ = rest.rpartition("/")
        return f"sqlite://{folder}{slash}{_COPIES}.sqlite"
    return {"postgresql": conversations, "memory": _IN_MEMORY}.get(scheme, "")


def _common(found: Mapping[str, str], workers: int) -> str:
    """Give where all workers find each other: the first SQLite file, where there are several."""
    files = (found[name] for name in _KEPT if found[name].startswith("sqlite://"))
    return next(files, PROCESS) if workers > 1 else PROCESS
