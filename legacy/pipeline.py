"""Flow `pipeline`, the old way: nodes by name, a table of what follows each, and a loop."""

from __future__ import annotations

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
from legacy.templates import FOLDER, system_prompt
from rules import pipeline as rules
from rules.conversation import ModelAnswer, prompt_messages, question
from rules.prompts import Render


@dataclass(kw_only=True)
class Conversation:
    """One turn on its way through the nodes; `response` is None where there is no whole one."""

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


Node = Callable[[Conversation], Awaitable[None]]
SendingNode = Callable[[Conversation], AsyncGenerator[PipelineEvent]]


async def _input_processor(talk: Conversation) -> None:
    talk.turn = rules.trimmed(talk.turn)
    talk.end_intent = rules.wishes_to_end(talk.turn.content)


async def _token_monitor(talk: Conversation) -> None:
    talk.monitored = await rules.monitor(talk.request, talk.effects, talk.turn)
    talk.errors.extend(talk.monitored.failures)


async def _memory_check(talk: Conversation) -> None:
    system = talk.prompts["memory_check"](rules.check_parameters())
    talk.involves_memory = await rules.involves_memory(
        talk.request, talk.effects, system, talk.turn
    )


async def _rag_retriever(talk: Conversation) -> None:
    query = rules.recall(talk.request, talk.turn)
    talk.memories = await talk.effects.memory.recall("recall", query)


async def _context_builder(talk: Conversation) -> None:
    system = talk.prompts["system"](rules.prompt(talk.request, talk.memories))
    talk.messages = prompt_messages(system, talk.monitored.shown, talk.turn)


async def _response_generator(talk: Conversation) -> AsyncGenerator[PipelineEvent]:
    answer, call = ModelAnswer(), question(talk.request.options, talk.messages, (), last=True)
    async for chunk in talk.effects.model.stream("reply", call):
        if piece := answer.add(chunk):
            yield PipelineToken(piece)
    talk.response = rules.whole(answer.text)


async def _token_response(talk: Conversation) -> AsyncGenerator[PipelineEvent]:
    talk.notice = rules.notice(talk.request, talk.monitored.info, talk.response)
    if talk.notice:
        yield PipelineToken(talk.notice)


async def _output_formatter(talk: Conversation) -> AsyncGenerator[PipelineEvent]:
    try:
        await rules.store(talk.effects, talk.turn, talk.response)
    except EffectFailed as failure:
        talk.errors.append(NodeFailure("output_formatter", failure.fault.code))
    yield rules.message(
        talk.response,
        talk.notice,
        talk.monitored.info,
        (entry.memory_id for entry in talk.memories),
        talk.errors,
        end_intent=talk.end_intent,
    )


NODES: Final[Mapping[str, Node]] = {
    "input_processor": _input_processor,
    "token_monitor": _token_monitor,
    "memory_check": _memory_check,
    "rag_retriever": _rag_retriever,
    "context_builder": _context_builder,
}
SENDING: Final[Mapping[str, SendingNode]] = {
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
CONDITIONAL_EDGES: Final[Mapping[str, tuple[Callable[[Conversation], bool], str, str]]] = {
    "memory_check": (lambda talk: talk.involves_memory, "rag_retriever", "context_builder"),
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


def following(node: str, talk: Conversation) -> str:
    """Return the node that follows."""
    if node not in CONDITIONAL_EDGES:
        return EDGES[node]
    condition, then, otherwise = CONDITIONAL_EDGES[node]
    return then if condition(talk) else otherwise


def read_prompts(folder: Path = FOLDER) -> Mapping[str, Render]:
    """Read the prompts of the flow from a folder, by name."""
    return {
        name: system_prompt(f"pipeline_{name}.j2", folder, default)
        for name, default in rules.PROMPTS.items()
    }


def pipeline(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    rendered = read_prompts(prompts)

    async def flow(request: rules.PipelineTurn, effects: Effects) -> AsyncIterator[PipelineEvent]:
        with effects.trace.node("admission"):
            turn = await rules.admit(request, effects)
        talk = Conversation(request=request, effects=effects, prompts=rendered, turn=turn)
        name = following("__start__", talk)
        while name != "__end__":
            with effects.trace.node(name):
                try:
                    if name in NODES:
                        await NODES[name](talk)
                    else:
                        async with aclosing(SENDING[name](talk)) as events:
                            async for event in events:
                                yield event
                except EffectFailed as failure:
                    talk.errors.append(NodeFailure(name, failure.fault.code))
            name = following(name, talk)

    return flow
