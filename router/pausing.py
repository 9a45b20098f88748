"""Pauses as a router sees them: who may go on, and what becomes of a pause when somebody has."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from contract.errors import EffectFailed
from contract.human import check_answer
from effects.tape import Asking, SuspendingHuman
from router.claims import LEASE, Claim
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import FlowSpec
    from contract.human import HumanAnswer
    from effects.human import ClaimReply, Pause, PauseStore
    from effects.tape import Tape

log = logging.getLogger(__name__)

_TOLD = 20
"""Of what is wrong with an answer: no form has more fields, an answer may have any number."""


@dataclass(frozen=True, slots=True)
class Pausing:
    """Where pauses are kept and for how long, in seconds; `wall` gives seconds since the epoch."""

    store: PauseStore
    seconds: float
    wall: Callable[[], float]

    def human(self, asking: Asking, tape: Tape) -> SuspendingHuman:
        """Give the human an exchange may ask."""
        return SuspendingHuman(
            self.store, tape, replace(asking, seconds=self.seconds), wall=self.wall
        )

    async def respond(self, spec: FlowSpec, hitl_id: str, answer: HumanAnswer) -> None:
        """Keep the answer to a question; raises `Problem` 404, 409, 410, 422 or 503."""
        try:
            pause = await self._find(spec, hitl_id)
            if pause.question is not None:
                _check(pause, answer)
            reply = await self.store.respond(hitl_id, answer)
        except EffectFailed as failure:
            raise unavailable(failure) from failure
        match reply:
            case "accepted" | "same":
                return
            case "conflict":
                raise Problem(409, "answered_otherwise", "the question has another answer already")
            case "expired":
                raise _expired()
            case "unknown":
                raise unknown()
            case _:
                assert_never(reply)

    async def claim(self, spec: FlowSpec, hitl_id: str, owner: str) -> Claim:
        """Take an answered pause to go on from it; raises `Problem` 404, 409, 410 or 503."""
        try:
            found = await self._find(spec, hitl_id)
            reply = await self.store.claim(hitl_id, owner, LEASE)
        except EffectFailed as failure:
            raise unavailable(failure) from failure
        if reply != "claimed":
            raise unclaimed(reply)
        try:
            pause = await self.store.get(hitl_id)
        except EffectFailed as failure:
            with suppress(EffectFailed):
                await self.store.give_back(hitl_id, owner)
            raise unavailable(failure) from failure
        if pause is None or pause.answer is None:
            raise unknown()
        return Claim(self.store, pause, owner, self.wall, found.expires_at)

    async def expire(self, spec: FlowSpec, session: str, exchange: str) -> None:
        """Expire what waits in a session: it has gone on with another turn, `exchange`."""
        try:
            await self.store.expire_session(spec.name, session, but=exchange)
        except EffectFailed as failure:
            log.warning("the pauses of a session stay open: %s", failure.fault.code)

    async def _find(self, spec: FlowSpec, hitl_id: str) -> Pause:
        pause = await self.store.get(hitl_id)
        if pause is None or pause.flow != spec.name:
            raise unknown()
        return pause


def _check(pause: Pause, answer: HumanAnswer) -> None:
    question = pause.question
    wrong = check_answer(question.form, answer) if question else ()
    if wrong:
        said = "; ".join(f"{problem.field!r}: {problem.code}" for problem in wrong[:_TOLD])
        raise Problem(422, "invalid_answer", said)


def unclaimed(reply: ClaimReply) -> Problem:
    """Say why nobody goes on from a pause here."""
    match reply:
        case "taken":
            return Problem(409, "continued_already", "somebody else goes on from this pause")
        case "finished":
            return Problem(409, "finished", "this pause has been gone on from, to the end")
        case "unanswered":
            return Problem(409, "unanswered", "the question has no answer yet")
        case "expired":
            return _expired()
        case _:
            return unknown()


def _expired() -> Problem:
    return Problem(410, "expired", "this question is not open any more")


def unknown() -> Problem:
    """Say that nothing is known of a pause."""
    return Problem(404, "unknown_pause", "no question with this id is known")


def unavailable(failure: EffectFailed) -> Problem:
    """Say that a pause cannot be read."""
    if failure.fault.code == "pause_outdated":
        return outdated()
    return Problem(503, failure.fault.code, "the pauses cannot be reached", retry_after=1)


def outdated() -> Problem:
    """Say that a pause is none of today's."""
    return Problem(409, "pause_outdated", "the version it was paused by is read no more")
