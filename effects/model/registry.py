"""The registry: which models there are, changeable while the process runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from contract.errors import CutoverError, EffectFailed, Fault
from effects.model.clients import ClientPool
from effects.model.entry import ModelEntry, Provider

if TYPE_CHECKING:
    from effects.model.provider_client import ProviderClient

_MOST_TOLD: Final = 100
"""Characters of an unknown id that are told, and looked at."""


class ModelTwice(CutoverError):
    """Two entries claim one model id."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"model id {model_id!r} is registered twice")


class ModelRegistry:
    """Entries by model id, replaced as a whole; and the clients of their providers.

    A stream keeps the entry it began with; the next call sees the new one.
    """

    def __init__(self, entries: Iterable[ModelEntry] = ()) -> None:
        self._entries = _by_id(entries)
        self._pool = ClientPool(self._providers())

    @property
    def entries(self) -> Mapping[str, ModelEntry]:
        """The entries in force now: a snapshot that never changes."""
        return self._entries

    def entry(self, model_id: str) -> ModelEntry:
        """Return what is registered; raises `EffectFailed` (`unknown_model`)."""
        entry = self._entries.get(model_id)
        if entry is None:
            # Of an id of megabytes the search alone would hold the loop for seconds.
            told = model_id[:_MOST_TOLD]
            nearest = get_close_matches(told, self._entries, n=1)
            hint = {"nearest": nearest[0]} if nearest else {}
            raise EffectFailed(Fault("unknown_model", data={"model_id": told, **hint}))
        return entry

    async def replace(self, entries: Iterable[ModelEntry]) -> None:
        """Put other entries in force, at once; raises `ModelTwice` and then changes nothing.

        Clients of providers that are gone or changed are closed when their last stream has ended.
        """
        self._entries = _by_id(entries)
        await self._pool.want(self._providers())

    def warm(self) -> None:
        """Make the clients of all providers now, not for the first who asks them."""
        self._pool.warm()

    def lease(self, provider: Provider) -> AbstractAsyncContextManager[ProviderClient]:
        """Lend the provider's client for one stream."""
        return self._pool.lease(provider)

    @property
    def open_clients(self) -> int:
        """How many clients are open."""
        return len(self._pool)

    async def aclose(self) -> None:
        """Close all clients, those in use when their last stream has ended."""
        await self._pool.want(())

    def _providers(self) -> set[Provider]:
        return {entry.provider for entry in self._entries.values()}


def _by_id(entries: Iterable[ModelEntry]) -> Mapping[str, ModelEntry]:
    by_id: dict[str, ModelEntry] = {}
    for entry in entries:
        if entry.model_id in by_id:
            raise ModelTwice(entry.model_id)
        by_id[entry.model_id] = entry
    return MappingProxyType(by_id)
