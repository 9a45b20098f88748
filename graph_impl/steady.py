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

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""How long an answer waits for its thread."""
REST_SECONDS = 30.0
"""How long nobody waits for a store again that has let somebody wait in vain."""

Kept = TypeVar("Kept")
_FAILURES = (Exception,)


class Patience:
    """Waits for a store of threads, and lets it rest once it has not answered in time."""

    def __init__(self) -> None:
        self._rests_until = float("-inf")

    async def without(self, instead: Kept, what: str, call: Coroutine[Any, Any, Kept]) -> Kept:
        """Await a call; gives `instead` where it fails, takes too long, or is not made."""
        if asyncio.get_running_loop().time() < self._rests_until:
            call.close()
            return instead
        limit = asyncio.timeout(WAIT_SECONDS)
        try:
            async with limit:
                return await call
        except _FAILURES as error:  # a saver raises whatever its driver does
            log.warning("a thread is not %s: %s", what, type(error).__name__)
            if limit.expired():
                self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            return instead


class Steady(BaseCheckpointSaver[Any]):
    """Mixed into a saver."""

    @cached_property
    def patience(self) -> Patience:
        """With which this saver is waited for."""
        return Patience()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the newest state of a thread; None where it cannot be read, or gone on from."""
        found = await self.patience.without(None, "read", super().aget_tuple(config))
        if found is not None and not goes_on(found.checkpoint):
            log.warning("a thread is not read: it is no state of this engine")
            return None
        return found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a state."""
        keeping = super().aput(config, checkpoint, metadata, new_versions)
        return await self.patience.without(config, "kept", keeping)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a node wrote before the run broke off."""
        keeping = super().aput_writes(config, writes, task_id, task_path)
        await self.patience.without(None, "kept", keeping)


def goes_on(checkpoint: Any) -> bool:  # noqa: ANN401 - whatever stood in the store
    """Whether the engine can count on from a state: other versions it trips over."""
    try:
        seen = checkpoint["versions_seen"].values()
        counts = [checkpoint["channel_versions"], *seen]
        versions = [version for count in counts for version in count.values()]
        names = [checkpoint["id"], checkpoint["ts"]]
        values = checkpoint["channel_values"].keys()
    except (AttributeError, KeyError, TypeError):
        return False
    return all(isinstance(name, str) for name in (*names, *values)) and all(
        isinstance(version, str) and version.partition(".")[0].isdecimal() for version in versions
    )
