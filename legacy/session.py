"""Flow `session`, the old way: recall, ask, store, and learn once the answer is out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from contract.errors import EffectFailed
from contract.flow import Flow
from contract.flows.session import (
    SessionCreated,
    SessionData,
    SessionEvent,
    SessionText,
    TextData,
    Thinking,
    failed,
)
from contract.model import Message, ToolSpec, Usage
from contract.ports import Effects
from legacy import rounds
from legacy.templates import FOLDER, read_prompt
from rules import session as rules
from rules.conversation import ModelAnswer, end_session_turn, question, tool_answer, tool_round
from rules.memories import as_paragraph
from rules.session import SESSION_PROMPT, SessionTurnRequest

DIAGRAM = """graph TD;
	__start__ --> recall_memory;
	recall_memory --> process;
	process -.-> tools;
	tools --> process;
	process -.-> extract_memory;
	extract_memory --> __end__;
"""


def session(prompts: Path = FOLDER) -> Flow:
    """Build the flow with the prompts of a folder."""
    render = read_prompt("session_system.j2", prompts, SESSION_PROMPT)

    async def flow(request: SessionTurnRequest, effects: Effects) -> AsyncIterator[SessionEvent]:
        options, node = request.options, effects.trace.node
        session_id = rules.session_of(request)
        with node("admission"):
            turn, earlier, new = await rules.admit(request, effects)
        turns, text, usage = (*earlier, turn), "", Usage()
        try:
            with node("recall_memory"):
                if new:
                    yield SessionCreated(SessionData(session_id))
                yield Thinking()
                found = await rounds.recalled(effects, rules.recall(request, new=new))
                memories = as_paragraph(found)
            messages: tuple[Message, ...] = ()
            tools: tuple[ToolSpec, ...] = ()
            for round_number in range(options.max_tool_iterations + 1):
                with node("process"):
                    if not messages:
                        messages, tools = await rules.lay_out(
                            request, effects, turns, memories, render
                        )
                    last = round_number >= options.max_tool_iterations
                    call, answer = question(options, messages, tools, last=last), ModelAnswer()
                    async for chunk in effects.model.stream("reply", call):
                        if piece := answer.add(chunk):
                            yield SessionText(TextData(piece))
                    text, usage = text + answer.text, usage + answer.usage
                    calls = answer.calls(call)
                    if not calls:
                        break
                    messages += (tool_round(answer.text, calls),)
                with node("tools"):
                    async with rounds.started_tools(effects, calls) as running:
                        for one, task in zip(calls, running, strict=True):
                            messages += (tool_answer(one, await task),)
            with node("process"):
                reply = await end_session_turn(effects, session_id, turn, text)
        except EffectFailed as failure:
            yield failed(failure.fault.code)
            return
        with node("extract_memory"):
            yield rules.done(reply, usage)
            await rounds.attempt_learning(rules.learn(request, effects, turns, reply))

    return flow
