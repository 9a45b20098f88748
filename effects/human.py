"""Humans who answer questions: none at all, and one whose answers are scripted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from contract.errors import EffectFailed, Fault, Paused
from contract.human import HumanAnswer, OpenQuestion


class NoHuman:
    """No human: for flows that ask nothing, and runs without a user."""

    async def open(self, site: str, question: OpenQuestion) -> NoReturn:
        """Refuse the question: fault `human_unavailable`."""
        raise EffectFailed(Fault("human_unavailable"))

    async def answer(self, site: str, hitl_id: str) -> NoReturn:
        """Refuse as well."""
        raise EffectFailed(Fault("human_unavailable"))


class ScriptedHuman:
    """The fake of the port: answers in the order of the questions, then leaves them open.

    `questions` holds those it was asked; ids are `hitl-1`, `hitl-2` and so on.
    """

    def __init__(self, answers: Iterable[HumanAnswer] = ()) -> None:
        self._answers = list(answers)
        self.questions: dict[str, OpenQuestion] = {}

    async def open(self, site: str, question: OpenQuestion) -> str:
        """Store the question; returns its id."""
        hitl_id = f"hitl-{len(self.questions) + 1}"
        self.questions[hitl_id] = question
        return hitl_id

    async def answer(self, site: str, hitl_id: str) -> HumanAnswer:
        """Read the answer; raises `Paused` while there is none."""
        number = list(self.questions).index(hitl_id) if hitl_id in self.questions else -1
        if not 0 <= number < len(self._answers):
            raise Paused(hitl_id)
        return self._answers[number]
