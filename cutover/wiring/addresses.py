"""Addresses of the stores: variables looked up, `auto` decided, and fit for several workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contract.errors import CutoverError
from router.config.addresses import AUTO, PROCESS, resolve_address
from router.config.schema import Settings, StoreSettings
from router.gateway import WorkerPeers

_STORES = ("conversations", "memory", "pauses")
_AUDIT = "audit"
_COORDINATION = ("locks", "pins")
_SHARED_STATE = "shared_state"
_CHECKPOINTS = "checkpoints"
_IN_MEMORY = "memory://"


class NotShared(CutoverError):
    """Several workers are configured, and a store would be each worker's own."""

    def __init__(self, workers: int, name: str, value: str, instead: str) -> None:
        super().__init__(
            f"{workers} workers cannot share [stores] {name} = {value!r}; use {instead}"
        )


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """The workers that share this host's stores, and how their gateways reach each other."""

    workers: int = 1
    neighbours: WorkerPeers | None = None


SINGLE_WORKER: Final = WorkerGroup()


def store_addresses(settings: Settings, environ: Mapping[str, str], workers: int) -> StoreSettings:
    """Return the addresses of a configuration's stores, as `resolve_stores` does."""
    # Where each stack stores its own history, a restart must not move conversations.
    own = any(flow.history == "own" for flow in settings.flows.values())
    return resolve_stores(settings.stores, environ, workers, lasting_pins=own)


def resolve_stores(
    stores: StoreSettings, environ: Mapping[str, str], workers: int, *, lasting_pins: bool = False
) -> StoreSettings:
    """Return the addresses of the stores, variables looked up and `auto` decided.

    For one worker `auto` is `process`, for several the first SQLite file of the other stores, for
    `lasting_pins` in any case; for the shared state it is where the locks are, for the audit where
    the pauses are.

    Raises:
        NotShared: a store cannot be shared by several workers.
        ConfigRefused: a variable is not set.
    """
    names = (*_STORES, *_COORDINATION, _SHARED_STATE, _CHECKPOINTS)
    found = {name: resolve_address(getattr(stores, name), environ) for name in names}
    found[_CHECKPOINTS] = checkpoints_address(found["conversations"], found[_CHECKPOINTS])
    found[_AUDIT] = audit_address(stores, environ)
    files = (found[name] for name in _STORES if found[name].startswith("sqlite://"))
    file = next(files, PROCESS)
    if workers > 1:
        for name in (*_STORES, _AUDIT, _CHECKPOINTS):
            if found[name] == _IN_MEMORY:
                raise NotShared(workers, name, found[name], "sqlite:///…")
    for name in _COORDINATION:
        if found[name] == AUTO:
            found[name] = file if workers > 1 or (name == "pins" and lasting_pins) else PROCESS
        if found[name] == PROCESS and workers > 1:
            value = getattr(stores, name)
            raise NotShared(workers, name, value, "sqlite:///… or redis://…")
    if found[_SHARED_STATE] == AUTO:
        found[_SHARED_STATE] = found["locks"]
    return stores.model_copy(update=found)


def audit_address(stores: StoreSettings, environ: Mapping[str, str]) -> str:
    """Return where the audit log is; `auto`: where the pauses are; raises `ConfigRefused`."""
    address = resolve_address(stores.audit, environ)
    return resolve_address(stores.pauses, environ) if address == AUTO else address


def checkpoints_address(conversations: str, checkpoints: str) -> str:
    """Return where stacks store copies of conversations; `auto`: beside the conversations.

    In SQLite a file of its own, since another library opens it. "" (nowhere) where a service stores
    the turns: deleting them there would leave the copies.
    """
    scheme, _, rest = conversations.partition("://")
    if checkpoints != AUTO:
        return checkpoints
    if scheme == "sqlite":
        folder, slash, _ = rest.rpartition("/")
        return f"sqlite://{folder}{slash}{_CHECKPOINTS}.sqlite"
    return {"postgresql": conversations, "memory": _IN_MEMORY}.get(scheme, "")
