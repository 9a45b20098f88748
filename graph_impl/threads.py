"""Where the engine keeps its threads, and the one place for them that is in this process.

A thread is a copy: the conversation store is the record, and where the two differ the store wins.
So no run reads its thread, each writes it whole; and a store of threads that fails, or takes too
long, costs nobody an answer: it is said in the log.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from contract.errors import EffectFailed, Fault
from graph_impl.steady import Steady

log = logging.getLogger(__name__)

FORGET_SECONDS = 10.0
"""How long a thread may take to be forgotten."""


def plain_values() -> JsonPlusSerializer:
    """Give what reads and writes states: unless told so, it would call whatever a state names."""
    return JsonPlusSerializer(allowed_msgpack_modules=None, allowed_json_modules=None)


class Threads(ABC):
    """A saver, and what the engine does not do with it: to keep only the newest, and to forget."""

    saver: Steady

    async def tidy(self, thread: str) -> None:
        """Remove all states of a thread but the newest; what fails is done the next time."""
        await self.saver.patience.without(None, "tidied", self._tidy(thread))

    async def forget(self, thread: str) -> None:
        """Remove a thread; raises `EffectFailed`."""
        try:
            async with asyncio.timeout(FORGET_SECONDS):
                await self._forget(thread)
        except Exception as error:
            log.warning("a thread is not forgotten: %s", type(error).__name__)
            raise EffectFailed(Fault("store_unavailable", retryable=True)) from error

    @abstractmethod
    async def _tidy(self, thread: str) -> None: ...

    async def _forget(self, thread: str) -> None:
        await self.saver.adelete_thread(thread)


class _SteadyMemory(Steady, InMemorySaver):
    pass


class MemoryThreads(Threads):
    """Threads in this process; gone with it."""

    def __init__(self) -> None:
        self.saver: _SteadyMemory = _SteadyMemory(serde=plain_values())

    async def _tidy(self, thread: str) -> None:
        for space, states in self.saver.storage.get(thread, {}).items():
            newest = max(states, default=None)
            if newest is None:
                continue
            for old in [one for one in states if one != newest]:
                del states[old]
                self.saver.writes.pop((thread, space, old), None)
            checkpoint = self.saver.serde.loads_typed(states[newest][0])
            versions = checkpoint["channel_versions"].items()
            for key in [key for key in self.saver.blobs if key[:2] == (thread, space)]:
                if key[2:] not in versions:
                    del self.saver.blobs[key]
