"""A turn of a companion: its admission, what flows between its nodes, what they reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from contract.flows.companion import CompanionDone, CompanionText
from contract.flows.session import lock_key
from contract.human import Form, HumanAnswer
from contract.ports import Effects
from contract.stores import Turn
from graph_impl.engine import Sink
from graph_impl.rounds import Plain, check_model
from graph_impl.templates import Render, system_prompt
from rules import companion as rules
from rules.conversation import reply_turn, session_busy
from rules.prompts import COMPANION_PROMPT, EXTRACTION_PROMPT, VISION_PROMPT


class VisitState(TypedDict, total=False):
    """What flows between the nodes: plain values only; `results` are those of the round so far."""

    picture: Plain
    messages: list[Plain]
    tools: list[Plain]
    results: dict[str, Plain]
    text: str
    found: list[Plain]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of the flow."""

    system: Render
    vision: Render
    extraction: Render

    @classmethod
    def of(cls, folder: Path) -> Prompts:
        """Read them from a folder."""
        return cls(
            system_prompt("companion_system.md", folder, COMPANION_PROMPT),
            system_prompt("companion_vision.md", folder, VISION_PROMPT),
            system_prompt("companion_extraction.md", folder, EXTRACTION_PROMPT),
        )


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that was taken, and what was said before it."""

    turn: Turn
    earlier: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class VisitContext:
    """What one run reaches the world and the client through; never part of the state."""

    asked: rules.Asked
    admitted: Admitted
    effects: Effects
    prompts: Prompts
    sink: Sink

    async def say(self, content: str) -> str:
        """Send a piece of the answer, and give it back; after the last, wait for `sink.taken`."""
        await self.sink.say(CompanionText(content))
        return content

    async def keep(self, text: str) -> None:
        """Store the whole answer, say that the session is free again, and end the stream."""
        effects = self.effects
        await self.sink.taken()
        answer = reply_turn(await effects.ids.new("reply"), self.admitted.turn, text)
        await effects.conversations.put("reply", answer)
        await effects.locks.release("session", lock_key(self.asked.body.session_id))
        await self.sink.send(CompanionDone("completed"))

    async def put(self, form: Form, kind: str) -> str:
        """Store a question; raises `EffectFailed` where nobody can be asked."""
        return await self.effects.human.open("ask", rules.opening(self.asked, form, kind))

    async def answer(self, hitl_id: str, form: Form, kind: str) -> HumanAnswer:
        """Show a question that is stored, and wait for its answer; raises `Paused`."""
        await self.sink.send(rules.hitl(self.asked, hitl_id, form, kind))
        return await self.effects.human.answer("ask", hitl_id)


async def admit(asked: rules.Asked, effects: Effects) -> Admitted:
    """Check model and session, read what was said before, store the turn; raises `Refused`."""
    session, options = asked.body.session_id, asked.options
    await check_model(effects, rules.model_id(asked), options.max_tokens)
    if not await effects.locks.acquire("session", lock_key(session), options.lock_ttl):
        raise session_busy()
    turn = rules.sent(asked, await effects.ids.new("message"))
    earlier: tuple[Turn, ...] = ()
    if rules.looks_back(asked):
        earlier = await effects.conversations.history(
            "history", session, before=turn.message_id, limit=options.history_limit
        )
    await effects.conversations.put("message", turn)
    return Admitted(turn, earlier)
