"""Turns of a flow in this process, for the benches of what a graph costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from contract.errors import CutoverError
from contract.flow import FlowSpec, Request
from cutover.wiring.stacks import DEFAULTS, load_stack
from effects.tape import NodeTimes, Tape, TapeSession
from effects.testing import World
from graph_impl import FLOWS as GRAPH
from router.serving.run import RunRequest
from router.serving.stack import LocalStack

STACKS = {
    "legacy": load_stack("legacy", DEFAULTS["legacy"]),
    "graph": LocalStack("graph", GRAPH, ""),
}
"""Both stacks; the graph's threads are stored nowhere."""
_LONGEST_S = 30.0


@dataclass(frozen=True, slots=True)
class TakenTurn:
    """A turn: its milliseconds to the end of all that follows the answer, its nodes, its frames."""

    ms: float
    nodes: int
    wire: bytes


class TurnBroken(CutoverError):
    """A turn was not answered: the figures would be worthless."""

    def __init__(self, stack: str) -> None:
        super().__init__(f"{stack!r} did not answer a turn")


class _CountedNodes(NodeTimes):
    """Counts how often a node of any name was opened, the admission before a graph excepted."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    def node(self, name: str) -> AbstractContextManager[None]:
        self.opened += name != "admission"
        return super().node(name)


async def take(
    stack: LocalStack, world: World, spec: FlowSpec, request: Request[Any, Any]
) -> TakenTurn:
    """Take one turn on a stack; raises `TurnBroken`."""
    exchange = world.exchange(Tape(), live=world.live())
    session = TapeSession(exchange, stack.name)
    session.trace = nodes = _CountedNodes()
    run = stack.new_run(RunRequest(spec, stack.name, request, "serving"), session)
    began = time.perf_counter()
    run.start()
    await run.wait_stopped(_LONGEST_S)
    took = time.perf_counter() - began
    await exchange.close()
    if not run.complete or run.reported:
        raise TurnBroken(stack.name)
    return TakenTurn(1_000 * took, nodes.opened, b"".join(frame.data for frame in run.frames))


def typical(milliseconds: Sequence[float]) -> float:
    """Return the tenth percentile: other work makes a turn longer, never shorter."""
    return sorted(milliseconds)[len(milliseconds) // 10]
