"""Both stacks do the same work in a node: its time on one is comparable with that on the other."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import pytest

from contract.operations import Operation
from cutover.selftest.cases import case
from effects.tape import NodeTimes, TapeSession
from graph_impl import describe
from router.serving.run import RunRequest
from router.serving.stack import LocalStack
from tests.flows.pipeline.test_parity import conversation as talks
from tests.flows.session.test_parity import conversation
from tests.support.companion_turns import visit
from tests.support.flow_runs import FOREVER, STACKS, Scene
from tests.support.ops_turns import conversation as operations

pytestmark = [pytest.mark.virtual, pytest.mark.slow, pytest.mark.untraced]

STACK_PACKAGES = {"legacy", "graph_impl"}
OUTSIDE = ""
NODE: ContextVar[str] = ContextVar("NODE", default=OUTSIDE)
"""The node in which a task runs."""
UNDRAWN = {"chat": set[str]()} | {
    flow: {"admission"} for flow in ("companion", "ops", "pipeline", "session")
}
"""Nodes of a flow that no document draws: what comes before there is a stream."""
SUBGRAPHS = {"deploy"}
"""Drawn as a node, and as a graph whose nodes are timed."""
READ_AGAIN = {"Portion.asks", "Portion.deploys", "Instruction.deploys"} | {
    "ModelAnswer.__init__",
    "Round.before",
    "rounds_of",
    "session_of",
    "sort_calls",
}
"""Rules without an effect that a stack follows again, in another node, instead of passing on what
came of them: a graph's state holds plain values."""
RULES_OUTSIDE = {"settings"}
"""Rules that are followed in no node: how a request is read, before it is admitted."""


class NotedNodes(NodeTimes):
    """Times nodes, and lets each task know in which node it is."""

    __slots__ = ()

    @contextmanager
    def node(self, name: str) -> Iterator[None]:
        """Time a node."""
        around = NODE.get()
        NODE.set(name)
        try:
            with super().node(name):
                yield
        finally:
            NODE.set(around)  # no token: a generator may end in another context


class NotedSession(TapeSession):
    """Counts the calls of a run by node, port, operation and site."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trace = NotedNodes()
        self.calls: Counter[tuple[str, str, str, str]] = Counter()

    async def call(self, operation: Operation, site: str, arguments: Any) -> Any:
        """Make a call that has one result."""
        self._note(operation, site)
        return await super().call(operation, site, arguments)

    def stream(self, operation: Operation, site: str, *rest: Any) -> Any:
        """Make a call that has many results."""
        self._note(operation, site)
        return super().stream(operation, site, *rest)

    def _note(self, operation: Operation, site: str) -> None:
        self.calls[NODE.get(), operation.port, operation.name, site] += 1


@dataclass
class Observed:
    """What was done in which node: the calls of the newest run, the rules of all runs."""

    stack: LocalStack
    session: NotedSession = field(init=False)
    rules: set[tuple[str, str]] = field(default_factory=set)

    async def run(self, scene: Scene) -> None:
        """Run a scene for real, to its end."""
        world = scene.world()
        if scene.taken:
            assert await world.live().locks.acquire("other", scene.taken, FOREVER)
        exchange = world.exchange(live=world.live())
        self.session = NotedSession(exchange, self.stack.name)
        wanted = RunRequest(scene.spec, self.stack.name, scene.request, "serving")
        run = self.stack.new_run(wanted, self.session)
        run.start()
        sys.setprofile(self._note)
        try:
            assert await run.wait_stopped(FOREVER)
        finally:
            sys.setprofile(None)
        await exchange.close()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a rule that the stack itself follows, not another rule."""
        by = frame.f_back
        if event == "call" and _package(frame) == "rules" and _package(by) in STACK_PACKAGES:
            self.rules.add((NODE.get(), frame.f_code.co_qualname))


def _package(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] if frame else ""


def chats(seed: int) -> Iterator[Scene]:
    """Draw a chat."""
    yield case(seed)


def visits(seed: int) -> Iterator[Scene]:
    """Draw a message or a picture, whose questions are answered at once, and then never."""
    yield visit(seed)
    yield replace(visit(seed), human=())


def shifts(seed: int) -> Iterator[Scene]:
    """Draw the turns of a session of ops."""
    yield from operations(seed)


FLOWS: dict[str, tuple[Callable[[int], Iterator[Scene]], int]] = {
    "chat": (chats, 40),
    "companion": (visits, 40),
    "ops": (shifts, 20),
    "pipeline": (talks, 20),
    "session": (conversation, 10),
}


def drawn(flow: str) -> set[str]:
    """Return the nodes of a flow's diagrams."""
    edges = "\n".join(describe(flow).values())
    names = {name for edge in re.findall(r"(\w+) (?:-->|-\.->) (\w+)", edges) for name in edge}
    return {name for name in names if not name.startswith("__")}


@pytest.mark.parametrize("flow", FLOWS)
async def test_a_node_is_the_same_work_on_both_stacks(flow: str) -> None:
    """The same effects are called in it, no call is made outside, and the rules are the same.

    The nodes open in the same order, and are those the documents draw.
    """
    draw, seeds = FLOWS[flow]
    legacy, graph = (Observed(STACKS[stack]) for stack in ("legacy", "graph"))
    opened: set[str] = set()
    for seed in range(seeds):
        for scene, again in zip(draw(seed), draw(seed), strict=True):  # two worlds, for two runs
            await legacy.run(scene)
            await graph.run(again)
            calls = legacy.session.calls
            assert graph.session.calls == calls
            assert OUTSIDE not in {node for node, *_ in calls}
            nodes = list(legacy.session.trace.spent)
            assert list(graph.session.trace.spent) == nodes
            opened.update(nodes)
    assert opened == (drawn(flow) | UNDRAWN[flow]) - SUBGRAPHS
    rules = {one for one in legacy.rules if one[1] not in READ_AGAIN}
    assert {one for one in graph.rules if one[1] not in READ_AGAIN} == rules
    assert {rule for node, rule in rules if node == OUTSIDE} <= RULES_OUTSIDE
