"""A turn of a companion, the old way: its admission, what is said, what is asked, what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract.flows.companion import CompanionText
from contract.flows.session import lock_key
from legacy.rounds import check_model
from legacy.templates import system_prompt
from rules import companion as rules
from rules.conversation import reply_turn, session_busy
from rules.prompts import COMPANION_PROMPT, EXTRACTION_PROMPT, VISION_PROMPT

if TYPE_CHECKING:
    from pathlib import Path

    from contract.human import Form, HumanAnswer
    from contract.ports import Effects
    from contract.stores import Turn
    from legacy.templates import Render
    from rules.companion import Asked


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
            system_prompt("companion_system.j2", folder, COMPANION_PROMPT),
            system_prompt("companion_vision.j2", folder, VISION_PROMPT),
            system_prompt("companion_extraction.j2", folder, EXTRACTION_PROMPT),
        )


class Visit:
    """One turn of a companion: what was asked, what has been said so far."""

    def __init__(self, asked: Asked, effects: Effects, prompts: Prompts) -> None:
        self.asked = asked
        self.options = asked.options
        self.effects = effects
        self.prompts = prompts
        self.key = lock_key(asked.body.session_id)
        self.text = ""
        self.earlier: tuple[Turn, ...] = ()

    async def admit(self) -> Turn:
        """Check model and session, read what was said before, store the turn; raises `Refused`."""
        wanted = rules.model_id(self.asked)
        await check_model(self.effects, wanted, self.options.max_tokens)
        if not await self.effects.locks.acquire("session", self.key, self.options.lock_ttl):
            raise session_busy()
        turn = rules.sent(self.asked, await self.effects.ids.new("message"))
        if rules.looks_back(self.asked):
            self.earlier = await self.effects.conversations.history(
                "history",
                self.asked.body.session_id,
                before=turn.message_id,
                limit=self.options.history_limit,
            )
        await self.effects.conversations.put("message", turn)
        return turn

    async def keep(self, turn: Turn) -> None:
        """Store the whole answer, and say that the session is free again."""
        answer = reply_turn(await self.effects.ids.new("reply"), turn, self.text)
        await self.effects.conversations.put("reply", answer)
        await self.effects.locks.release("session", self.key)

    def say(self, content: str) -> CompanionText:
        """Say a piece of the answer."""
        self.text += content
        return CompanionText(content)

    async def put(self, form: Form, kind: str) -> str:
        """Put a question; raises `EffectFailed` where nobody can be asked."""
        return await self.effects.human.open("ask", rules.opening(self.asked, form, kind))

    async def answer(self, hitl_id: str) -> HumanAnswer:
        """Wait for the answer to a question; raises `Paused`."""
        return await self.effects.human.answer("ask", hitl_id)
