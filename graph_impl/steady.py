"""Savers that cost nobody an answer: what fails or hangs is logged, and done without."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.constants import START

log = logging.getLogger(__name__)

_BRANCH = "branch:to:"

WAIT_SECONDS = 2.0
"""How long an answer waits for its thread."""
REST_SECONDS = 30.0
"""How long nobody waits for a store again that has let somebody wait in vain."""

Kept = TypeVar("Kept")
_FAILURES = (Exception,)
_NEVER = float("-inf")


class Patience:
    """Waits for a store of threads, and lets it rest once it has not answered in time."""

    def __init__(self) -> None:
        self._rests_until = _NEVER

    async def without(self, instead: Kept, what: str, call: Coroutine[Any, Any, Kept]) -> Kept:
        """Await a call; gives `instead` where it fails, takes too long, or is not made."""
        now = asyncio.get_running_loop().time()
        if now < self._rests_until:
            call.close()
            return instead
        finding_out = self._rests_until != _NEVER
        if finding_out:
            self._rests_until = now + REST_SECONDS  # nobody waits beside this one
        limit = asyncio.timeout(WAIT_SECONDS)
        try:
            async with limit:
                return await call
        except _FAILURES as error:  # a saver raises whatever its driver does
            log.warning("a thread is not %s: %s", what, type(error).__name__)
            if limit.expired():
                self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            return instead
        finally:
            if finding_out and not limit.expired():
                self._rests_until = _NEVER


class Steady(BaseCheckpointSaver[Any]):
    """Mixed into a saver: runs write to it, and are never kept waiting by what stands there."""

    @cached_property
    def patience(self) -> Patience:
        """With which this saver is waited for."""
        return Patience()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:  # noqa: ARG002 - the engine passes it by this name
        """Give no state: every run begins with what the store holds, and nobody waits for it."""
        return None

    async def read(self, thread: str) -> CheckpointTuple | None:
        """Read the newest state of a thread; raises what the store does."""
        return await super().aget_tuple({"configurable": {"thread_id": thread}})

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep the last state of a run that came to its end; one that breaks off leaves none.

        It may be on its way out when the next turn, or whoever deletes the session, is at work.
        """
        if not ended(checkpoint):
            return config
        keeping = super().aput(config, checkpoint, metadata, new_versions)
        return await self.patience.without(config, "kept", keeping)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep nothing: what nodes wrote before a run broke off is not gone on from."""


def ended(checkpoint: Checkpoint) -> bool:
    """Whether no node is left to run from a state."""
    return not any(
        name == START or name.startswith(_BRANCH) for name in checkpoint["channel_values"]
    )
