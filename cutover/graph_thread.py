"""The threads of a wrapped graph: every run of an exchange begins where the exchange began."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from cutover.tape.exchange import Exchange
from cutover.tape.run import Run, current_run

log = logging.getLogger(__name__)

SECONDS = 2.0
"""How long storing a thread that is only looked at may take."""
SHADOW = "shadow:"
"""What the threads of shadows begin with, in the graph's own saver: delete both of a user."""

_Seed = CheckpointTuple | None
_Seeds = dict[object, _Seed]
_seeds: WeakKeyDictionary[Exchange | Run, _Seeds] = WeakKeyDictionary()
"""By exchange, the states its runs began with: a successor begins where its predecessor did.

By run, the states it has left behind: its next call of the graph goes on from there.
"""


@dataclass(slots=True, eq=False)
class Thread:
    """A conversation's state while a run works on it; `save` puts it where it came from, once.

    A run works in memory. One that breaks, pauses or is left leaves no trace, so that the next one
    doubles no message. A run that plays begins with the state that the live run of its exchange
    began with, and saves nothing; where another stack served, it has a thread of its own.
    """

    config: RunnableConfig
    memory: InMemorySaver
    _saver: BaseCheckpointSaver[Any]
    _seed: _Seed
    _target: str | None
    _place: object
    _left: _Seeds
    _looked_at: bool = False

    async def save(self) -> None:
        """Store the newest state in the graph's saver, behind the one it began with.

        Of a thread that is only looked at, a failure is logged, and `SECONDS` are waited at most.
        """
        try:
            async with asyncio.timeout(SECONDS if self._looked_at else None):
                await self._save()
        except Exception as failure:
            if not self._looked_at:
                raise
            log.warning("thread=%s was not kept error=%r", self._target, failure)

    async def _save(self) -> None:
        end = await self.memory.aget_tuple(self.config)
        self._left[self._place] = end
        if end is None or self._target is None:
            return
        parent, known = None, {}
        if self._seed is not None and _id(self._seed.config, "thread_id") == self._target:
            parent = self._seed.checkpoint["id"]
            known = self._seed.checkpoint["channel_versions"]
        versions = end.checkpoint["channel_versions"]
        if end.checkpoint["id"] == parent:
            return
        where = {"thread_id": self._target, "checkpoint_id": parent}
        await self._saver.aput(
            _at(self.config, where),
            end.checkpoint,
            end.metadata,
            {name: one for name, one in versions.items() if known.get(name) != one},
        )


def new_thread(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> Thread:
    """Return a thread that begins empty, whatever is stored, and is only looked at."""
    memory = InMemorySaver(serde=saver.serde)
    served = str(_id(config, "thread_id"))
    own = _at(config, {"thread_id": served, "checkpoint_id": None})
    return Thread(own, memory, saver, None, served, None, {}, _looked_at=True)


async def open_thread(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> Thread:
    """Return the thread that `config` names, in memory, for the current run."""
    run = current_run()
    seeds = {} if run is None else _seeds.setdefault(run.exchange, {})
    left = {} if run is None else _seeds.setdefault(run, {})
    served = str(_id(config, "thread_id"))
    config = _at(config, {"thread_id": served})  # as LangGraph does with a UUID or a number
    plays = run is not None and run.policy != "live"
    place = (saver, served, _id(config, "checkpoint_id"))
    target = None
    if plays and place not in seeds:
        target, place = SHADOW + served, (saver, SHADOW + served, None)
    elif not plays:
        target = served
    if place not in seeds:
        found = [await saver.aget_tuple(config)]
        if plays:
            found.append(await saver.aget_tuple(_at(config, {"thread_id": target})))
        seeds[place] = max(filter(None, found), key=lambda one: one.checkpoint["ts"], default=None)
    seed, memory = left.get(place, seeds[place]), InMemorySaver(serde=saver.serde)
    memory.get_next_version = saver.get_next_version  # type: ignore[method-assign]  # theirs go on
    own = _at(config, {"checkpoint_id": None})
    if seed is not None:
        state = seed.checkpoint
        stored = await memory.aput(own, state, seed.metadata, state["channel_versions"])
        for task, channel, value in seed.pending_writes or ():
            await memory.aput_writes(stored, [(channel, value)], task)
    return Thread(own, memory, saver, seed, target, place, left)


def _id(config: RunnableConfig, name: str) -> Any:
    return config["configurable"].get(name)


def _at(config: RunnableConfig, where: dict[str, Any]) -> RunnableConfig:
    """Return a config with another place, the parts of a place that are None left out."""
    place = {"checkpoint_ns": ""} | config["configurable"] | where
    return {**config, "configurable": {k: one for k, one in place.items() if one is not None}}
