"""Measures what LangGraph's engine costs each flow, for the bench; rows go to standard output.

    python -m benchmarks.parts.graphs TURNS

Every turn is taken by both stacks in this process, on worlds of their own whose model, workers and
stores answer at once: what the graph takes longer is its engine's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import msgspec

from benchmarks.parts.turns import STACKS, take, typical
from benchmarks.rows import BenchRow, at_most, reported
from contract.flow import FlowSpec, Request
from contract.flows.ops import OPS, OpsOptions, OpsRequest
from contract.flows.pipeline import PIPELINE, PipelineOptions, PipelineRequest
from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.model import ModelCall
from contract.workers import WorkerResult
from effects.model import says
from effects.model.fake import Step
from effects.testing import World
from effects.workers import ScriptedWorkers
from graph_impl import chat, companion, ops, pipeline, session

COMPILES = 20
COMPILE_MS, SWITCH_MS = 50.0, 2.0
TEXT = "Tell me how a river finds its way to the sea, in plain words, please."
ANSWER = says(*(f"{word} " for word in TEXT.split()))
STEP = says(
    '{"instructions":[{"worker":"system","action":"disk"},{"worker":"system","action":"memory"}]}'
)
BUILDERS: Mapping[str, Callable[[], object]] = {
    "chat": chat.build,
    "companion.messages": companion.build_messages,
    "companion.pictures": companion.build_pictures,
    "ops": ops.build,
    "ops.deployment": ops.build_deployment,
    "pipeline": pipeline.build,
    "session": session.build,
}


@dataclass(frozen=True, slots=True)
class MeasuredFlow:
    """A flow, a request in a session of a name, and the answers of its model to one turn."""

    spec: FlowSpec
    request: Callable[[str], Request[Any, Any]]
    answers: Sequence[Sequence[Step]]

    def world(self) -> World:
        """Build a world that answers turn after turn."""
        answers = cycle(self.answers)

        def script(_: ModelCall) -> Sequence[Step]:
            return next(answers)

        done = (WorkerResult(ok=True, message="looked"),)
        workers = ScriptedWorkers({"system.disk": done, "system.memory": done})
        return World(script, workers=workers)


FLOWS = (
    MeasuredFlow(
        SESSION,
        lambda name: Request(
            SessionRequest(message=TEXT, session_id=name), SessionOptions(unknown_session="create")
        ),
        (ANSWER,),
    ),
    MeasuredFlow(
        PIPELINE,
        lambda name: Request(
            PipelineRequest(user_id="u", message=TEXT, session_id=name), PipelineOptions()
        ),
        (says("不需要检索"), ANSWER),
    ),
    MeasuredFlow(
        OPS,
        lambda name: Request(OpsRequest(input=TEXT, session_id=name), OpsOptions()),
        (STEP, says('{"final":"all is well"}')),
    ),
)


async def switches(flow: MeasuredFlow, turns: int) -> list[BenchRow]:
    """Measure what the engine adds to a turn of a flow, and to each node it runs in it."""
    worlds = {name: flow.world() for name in STACKS}
    taken: dict[str, list[float]] = {name: [] for name in STACKS}
    nodes: list[int] = []
    for number in range(turns):
        for name, stack in STACKS.items():
            one = await take(stack, worlds[name], flow.spec, flow.request(f"s-{number}"))
            taken[name].append(one.ms)
            if name == "graph":
                nodes.append(one.nodes)
    added = typical(taken["graph"]) - typical(taken["legacy"])
    run = max(nodes)
    how = f"tenth percentile of {turns} turns, graph less legacy; {run} nodes of a graph in a turn"
    return [
        reported(f"{flow.spec.name}.engine", added, "ms", how),
        at_most(
            f"{flow.spec.name}.node_switch",
            added / run,
            "ms",
            SWITCH_MS,
            f"{how}: the engine's start is shared among them; documents: 1-2 ms",
        ),
    ]


def compiles() -> list[BenchRow]:
    """Measure what compiling each graph takes, which happens once in a process."""
    rows: list[BenchRow] = []
    for name, build in BUILDERS.items():
        taken: list[float] = []
        for _ in range(COMPILES):
            began = time.perf_counter()
            build()
            taken.append(1_000 * (time.perf_counter() - began))
        how = f"tenth percentile of {COMPILES}; documents: 50 ms"
        rows.append(at_most(f"{name}.graph_compile", typical(taken), "ms", COMPILE_MS, how))
    return rows


async def measure(turns: int) -> list[BenchRow]:
    """Measure all flows."""
    rows = compiles()
    for flow in FLOWS:
        rows += await switches(flow, turns)
    return rows


def main() -> None:
    """Measure and print."""
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(measure(int(sys.argv[1])))))


if __name__ == "__main__":
    main()
