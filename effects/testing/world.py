"""A world made of the public fakes: the ports a stack reaches, and a count of the calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from contract.model import ModelInfo
from contract.operations import OPERATIONS, WriteLimits
from contract.ports import Effects
from contract.stores import Turn
from effects.local import CallerPerforms, CountingIds, ManualClock, ScriptedHuman
from effects.memory import InMemoryMemory
from effects.model import Script, ScriptedModel, Step, says
from effects.stores import ProcessLocks
from effects.stores.fake import MemoryConversations
from effects.tape import Exchange, Journal, NodeTimes, Policy, Tape, TapeSession
from effects.tools.fake import ScriptedTools
from effects.workers import AuditedWorkers, MemoryAudit, ScriptedWorkers


@dataclass(slots=True)
class CountedPort:
    """Any port, with every call noted as (`port.operation`, site) before it is made."""

    _name: str
    _port: object
    _made: list[tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if (self._name, name) not in OPERATIONS:
            return method

        def counted(site: str, *args: object, **named: object) -> object:
            self._made.append((f"{self._name}.{name}", site))
            return method(site, *args, **named)

        return counted


class World:
    """The world outside: fakes a test can script, look at, and count.

    `effects` are the live ports, `made` every live call as (label, site) in the order they were
    made. Each part can be replaced by a port of the test's own (`parts`, by the port's name).

        world = World(model=says("Hello", " there", every=0.1), tools=ScriptedTools({"dice": "4"}))
        exchange = world.exchange()
        run = world.run(exchange, name="legacy")    # then: flow(request, run.effects())
        assert world.count("model.stream") == 1
    """

    def __init__(
        self,
        model: Script | Sequence[Step] | ScriptedModel | None = None,
        *,
        tools: ScriptedTools | None = None,
        workers: ScriptedWorkers | None = None,
        turns: Iterable[Turn] = (),
        models: Iterable[ModelInfo] | None = None,
        **parts: object,
    ) -> None:
        if not isinstance(model, ScriptedModel):
            model = ScriptedModel(says("Hello") if model is None else model, models)
        self.model = model
        self.tools = tools or ScriptedTools({})
        self.memory = InMemoryMemory()
        self.human = ScriptedHuman()
        self.workers = workers or ScriptedWorkers({})
        self.audit = MemoryAudit()
        self.locks = ProcessLocks()
        self.clock = ManualClock()
        self.conversations = MemoryConversations(turns, self.clock.time)
        self.ids = CountingIds()
        self.made: list[tuple[str, str]] = []
        self._parts = parts
        self.effects = self.live()

    def live(self, **parts: object) -> Effects:
        """Bundle the ports for one more exchange: same stores, an owner of locks of its own.

        `parts` replace ports for this exchange alone.
        """
        ports: dict[str, Any] = {
            "model": self.model,
            "tools": self.tools,
            "memory": self.memory,
            "conversations": self.conversations,
            "locks": self.locks.for_exchange(),
            "clock": self.clock,
            "ids": self.ids,
            "human": self.human,
            "workers": self.workers,
            "audit": self.audit,
            "external": CallerPerforms(),
            **self._parts,
            **parts,
        }
        ports["workers"] = AuditedWorkers(ports["workers"], ports["audit"], ports["clock"])
        counted = {name: CountedPort(name, port, self.made) for name, port in ports.items()}
        return Effects(**cast("dict[str, Any]", counted), trace=NodeTimes())

    def exchange(
        self,
        tape: Tape | None = None,
        *,
        live: Effects | None = None,
        write: float | WriteLimits = 30.0,
        journal: Journal | None = None,
        after: int = 0,
    ) -> Exchange:
        """Open an exchange on the running loop's clock; `write`: the seconds of a write."""
        return Exchange(
            self.effects if live is None else live,
            tape,
            limits=write if isinstance(write, WriteLimits) else WriteLimits(write),
            journal=journal,
            monotonic=asyncio.get_running_loop().time,
            after=after,
        )

    def run(
        self, exchange: Exchange | None = None, policy: Policy = "live", name: str = "run"
    ) -> TapeSession:
        """Open the session of a run, in a new exchange unless one is given."""
        return TapeSession(exchange or self.exchange(), name, policy)

    def count(self, label: str) -> int:
        """Return how often an operation was performed for real, `model.stream` say."""
        return Counter(label for label, _ in self.made)[label]
