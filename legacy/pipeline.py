"""The pipeline flow, written by hand: a table of nodes and edges, and the loop that walks it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai

from cutover import EffectFailed, Request, StackFailed
from cutover.errors import Failed, outcome_of
from cutover.tape import timed
from effects import conversations
from effects.conversations import Turn
from effects.memory import Memory, memories, namespace
from effects.models import tokens
from effects.world import current, new_id, read_clock
from legacy.model import Answer, Message, ask, render, stream
from rules.extraction import RECALLED, memory_query
from rules.flows import pipeline as wire
from rules.flows.pipeline import token_action, turns_to_drop
from rules.intents import needs_memory, wishes_to_end
from rules.models import HISTORY
from rules.prompts import memories_paragraph, speakers, text

log = logging.getLogger(__name__)

FAILURES = (EffectFailed, StackFailed, openai.OpenAIError)
"""What a node may fail with so that the run goes on; anything else ends it."""


@dataclass(slots=True)
class State:
    """What the nodes know of one request."""

    request: Request[wire.PipelineRequest, wire.PipelineOptions]
    token_info: wire.TokenInfo
    message: str = ""
    end_intent: bool = False
    history: list[Turn] = field(default_factory=list)
    involves_memory: bool = False
    retrieved: list[Memory] = field(default_factory=list)
    context: list[Message] = field(default_factory=list)
    response: str | None = None
    errors: list[wire.NodeFailure] = field(default_factory=list)


Events = AsyncIterator[wire.PipelineEvent]


async def input_processor(state: State) -> None:
    """Trim the message and see whether it says goodbye."""
    state.message = state.request.body.message.strip()
    state.end_intent = wishes_to_end(state.message)


async def token_monitor(state: State) -> None:
    """Count history and message; leave out the oldest turns where they do not fit."""
    options = state.request.options
    found = await conversations.history("pipeline", state.request.body.session_id, HISTORY)
    texts = [*(turn.content for turn in found), state.message]
    counted = [tokens(one, options.model_id) for one in texts]
    counts = [count for count, _ in counted]
    state.token_info = wire.TokenInfo(
        used=sum(counts),
        limit=options.token_limit,
        action=token_action(sum(counts), options.token_limit),
        estimated=not all(exact for _, exact in counted),
    )
    state.history = found[turns_to_drop(counts, options.token_limit) :]


async def memory_check(state: State) -> None:
    """Ask the model whether the message needs memories; unclear is no."""
    entry = current().models.find(state.request.options.model_id)
    question = render("pipeline_memory_check", {"message": state.message})
    asked: list[Message] = [{"role": "user", "content": question}]
    answer = await ask(entry, asked, temperature=0.1, max_tokens=10)
    state.involves_memory = needs_memory(answer.text)


async def rag_retriever(state: State) -> None:
    """Look memories of the user up, of the relation that is spoken with."""
    body = state.request.body
    found = await current().memory.asearch(
        namespace(body.user_id),
        query=memory_query([state.message]),
        filter={"relation": body.interlocutor.relation} if body.interlocutor else None,
        limit=RECALLED,
    )
    state.retrieved = memories(found)


async def context_builder(state: State) -> None:
    """Put the system prompt, the history and the message together."""
    body, options = state.request.body, state.request.options
    other = (body.interlocutor.name, body.interlocutor.relation) if body.interlocutor else None
    found = [one.text for one in state.retrieved]
    parameters = {
        "system_prompt": options.system_prompt,
        "speakers": speakers(options.texts, body.user_name, other),
        "memories": memories_paragraph("pipeline", options.texts, found),
    }
    state.context = [
        {"role": "system", "content": render("pipeline_system", parameters)},
        *({"role": turn.role, "content": turn.content} for turn in state.history),
        {"role": "user", "content": state.message},
    ]


async def response_generator(state: State) -> Events:
    """Stream the answer."""
    options, answer = state.request.options, Answer()
    entry = current().models.find(options.model_id)
    async for piece, _ in stream(entry, state.context, answer, temperature=options.temperature):
        if piece:
            state.response = answer.text
            yield wire.PipelineToken(piece)
    if state.response is None:  # filtered, or nothing but reasoning
        raise StackFailed(code="model_empty", blame="world")


async def token_response(state: State) -> Events:
    """Append the notice, or the closing line, that the number of tokens calls for."""
    action = state.token_info.action
    if state.response is not None and action != "continue":
        notice = text("pipeline", state.request.options.texts, action)
        state.response += notice
        yield wire.PipelineToken(notice)


async def output_formatter(state: State) -> Events:
    """Store what was said, and make the one message at the end."""
    if state.response is not None:
        try:
            await _store(state, state.response)
        except FAILURES as error:
            state.errors.append(_failure("output_formatter", error))
    yield wire.PipelineMessage(
        success=state.response is not None,
        message=state.response,
        token_info=state.token_info,
        end_intent=state.end_intent,
        memories=tuple(one.id for one in state.retrieved),
        errors=tuple(state.errors),
    )


def route_by_memory_check(state: State) -> str:
    """Return where the memory check leads."""
    return "rag_retriever" if state.involves_memory else "context_builder"


Node = Callable[[State], Awaitable[None] | Events]
Edge = str | Callable[[State], str] | None
NODES: Mapping[str, tuple[Node, Edge]] = {
    "input_processor": (input_processor, "token_monitor"),
    "token_monitor": (token_monitor, "memory_check"),
    "memory_check": (memory_check, route_by_memory_check),
    "rag_retriever": (rag_retriever, "context_builder"),
    "context_builder": (context_builder, "response_generator"),
    "response_generator": (response_generator, "token_response"),
    "token_response": (token_response, "output_formatter"),
    "output_formatter": (output_formatter, None),
}
"""Each node, and where it leads: always to the same one, by the state, or to the end."""


async def pipeline(
    request: Request[wire.PipelineRequest, wire.PipelineOptions],
) -> AsyncIterator[wire.PipelineEvent]:
    """Walk the table from the first node to the end."""
    state = State(request, wire.TokenInfo(0, request.options.token_limit, "continue"))
    name: str | None = "input_processor"
    while name is not None:
        node, edge = NODES[name]
        try:
            with timed(name):
                work = node(state)
                if isinstance(work, AsyncIterator):
                    async for event in work:
                        yield event
                else:
                    await work
        except FAILURES as error:
            if node is response_generator and state.response is not None:
                raise  # the client has some of the answer
            log.warning("node=%s failed error=%s", name, error)
            state.errors.append(_failure(name, error))
        name = edge(state) if callable(edge) else edge


def _failure(node: str, error: BaseException) -> wire.NodeFailure:
    outcome = outcome_of(error)
    return wire.NodeFailure(node, outcome.code if isinstance(outcome, Failed) else "failed")


async def _store(state: State, response: str) -> None:
    body, at = state.request.body, await read_clock()
    said: list[tuple[Any, str]] = [("user", state.message), ("assistant", response)]
    for role, content in said:
        turn_id = await new_id("message")
        turn = Turn(turn_id, "pipeline", body.session_id, role, content, None, body.user_id, at)
        await conversations.add(turn)
