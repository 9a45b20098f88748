"""Flow `pipeline`, the old way: nodes by name, a table of what follows each, and a loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.errors import EffectFailed
from contract.flow import Flow
from contract.flows.pipeline import NodeFailure, PipelineEvent, PipelineToken
from contract.model import Message
from contract.ports import Effects
from contract.stores import MemoryEntry, Turn
from legacy.templates import FOLDER, read_prompts
from rules import pipeline as rules
from rules.conversation import ModelAnswer, question
from rules.prompts import Render

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TurnState:
    """A turn on its way through the nodes; `response` is None where there is no whole one."""

    request: rules.PipelineTurn
    effects: Effects
    prompts: Mapping[str, Render]
    turn: Turn
    monitored: rules.Monitored = field(init=False)
    end_intent: bool = False
    involves_memory: bool = False
    memories: tuple[MemoryEntry, ...] = ()
    messages: tuple[Message, ...] = ()
    response: str | None = None
    notice: str = ""
    errors: list[NodeFailure] = field(default_factory=list)


Node = Callable[[TurnState], Awaitable[None] | AsyncGenerator[PipelineEvent]]
"""Works on the state; a node that sends events yields them."""


async def _input_processor(state: TurnState) -> None:
    state.turn = rules.trim(state.turn)
    state.end_intent = rules.wishes_to_end(state.turn.content)


async def _token_monitor(state: TurnState) -> None:
    state.monitored = await rules.monitor(state.request, state.effects, state.turn)
    state.errors.extend(state.monitored.failures)


async def _memory_check(state: TurnState) -> None:
    state.involves_memory = await rules.involves_memory(
        state.request, state.effects, state.turn, state.prompts["memory_check"]
    )


async def _rag_retriever(state: TurnState) -> None:
    query = rules.recall(state.request, state.turn)
    state.memories = await state.effects.memory.recall("recall", query)


async def _context_builder(state: TurnState) -> None:
    state.messages = rules.lay_out(
        state.request, state.memories, state.monitored.shown, state.turn, state.prompts["system"]
    )


async def _response_generator(state: TurnState) -> AsyncGenerator[PipelineEvent]:
    answer, call = ModelAnswer(), question(state.request.options, state.messages, (), last=True)
    async for chunk in state.effects.model.stream("reply", call):
        if piece := answer.add(chunk):
            yield PipelineToken(piece)
    state.response = rules.response_of(answer.text)


async def _token_response(state: TurnState) -> AsyncGenerator[PipelineEvent]:
    state.notice = rules.notice(state.request, state.monitored.info, state.response)
    if state.notice:
        yield PipelineToken(state.notice)


async def _output_formatter(state: TurnState) -> AsyncGenerator[PipelineEvent]:
    try:
        await rules.store(state.request, state.effects, state.turn, state.response)
    except EffectFailed as failure:
        state.errors.append(NodeFailure("output_formatter", failure.fault.code))
    for error in state.errors:
        log.warning("node %s failed: %s", error.node, error.code)
    yield rules.ending(
        state.response,
        state.notice,
        state.monitored.info,
        (entry.memory_id for entry in state.memories),
        state.errors,
        end_intent=state.end_intent,
    )


NODES: Final[Mapping[str, Node]] = {
    "input_processor": _input_processor,
    "token_monitor": _token_monitor,
    "memory_check": _memory_check,
    "rag_retriever": _rag_retriever,
    "context_builder": _context_builder,
    "response_generator": _response_generator,
    "token_response": _token_response,
    "output_formatter": _output_formatter,
}

EDGES: Final[Mapping[str, str]] = {
    "__start__": "input_processor",
    "input_processor": "token_monitor",
    "token_monitor": "memory_check",
    "rag_retriever": "context_builder",
    "context_builder": "response_generator",
    "response_generator": "token_response",
    "token_response": "output_formatter",
    "output_formatter": "__end__",
}
"""What follows a node, whatever happens."""
CONDITIONAL_EDGES: Final[Mapping[str, tuple[Callable[[TurnState], bool], str, str]]] = {
    "memory_check": (lambda state: state.involves_memory, "rag_retriever", "context_builder"),
}
"""What follows where a condition holds, and where it does not."""

DIAGRAM: Final = "graph TD;\n" + "".join(
    [f"\t{node} --> {then};\n" for node, then in EDGES.items()]
    + [
        f"\t{node} -.-> {then};\n"
        for node, (_, *both) in CONDITIONAL_EDGES.items()
        for then in both
    ]
)


def next_node(node: str, state: TurnState) -> str:
    """Return the name of the node that follows."""
    if node not in CONDITIONAL_EDGES:
        return EDGES[node]
    condition, then, otherwise = CONDITIONAL_EDGES[node]
    return then if condition(state) else otherwise


def pipeline(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    rendered = read_prompts("pipeline", prompts, rules.PROMPTS)

    async def flow(request: rules.PipelineTurn, effects: Effects) -> AsyncIterator[PipelineEvent]:
        with effects.trace.node("admission"):
            turn = await rules.admit(request, effects)
        state = TurnState(request=request, effects=effects, prompts=rendered, turn=turn)
        name = next_node("__start__", state)
        while name != "__end__":
            with effects.trace.node(name):
                try:
                    work = NODES[name](state)
                    if isinstance(work, AsyncGenerator):
                        async with aclosing(work) as events:
                            async for event in events:
                                yield event
                    else:
                        await work
                except EffectFailed as failure:
                    state.errors.append(NodeFailure(name, failure.fault.code))
            name = next_node(name, state)

    return flow
