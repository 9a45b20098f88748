"""Pauses as a router sees them: who may go on, and what becomes of a pause when somebody has."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from contract.errors import EffectFailed
from contract.human import check_answer
from effects.tape import PauseOrigin, PausingHuman, interrupted_tape, paused_request, resume
from router.problems import Problem
from router.resume.claims import LEASE, Claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import FlowSpec, Request
    from contract.human import HumanAnswer
    from effects.stores import ClaimReply, Pause, PauseStore
    from effects.tape import Entry, Exchange, Tape
    from router.context import ExchangeContext
    from router.serving.stream import Serving
    from router.stack import Stack


log = logging.getLogger(__name__)

_TOLD = 20
"""Of what is wrong with an answer: no form has more fields, an answer may have any number."""


@dataclass(frozen=True, slots=True)
class Pausing:
    """Where pauses are kept and for how long, in seconds; `wall` gives seconds since the epoch."""

    store: PauseStore
    seconds: float
    wall: Callable[[], float]

    def human(self, asking: PauseOrigin, tape: Tape) -> PausingHuman:
        """Give the human an exchange may ask."""
        return PausingHuman(self.store, tape, replace(asking, seconds=self.seconds), wall=self.wall)

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
                await self.store.release(hitl_id, owner)
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


@dataclass(frozen=True, slots=True)
class Resumed:
    """A paused exchange that goes on: who claims it, its tape, and its answer on that tape."""

    claim: Claim
    request: Request[Any, Any]
    tape: Tape
    answer: Entry

    @classmethod
    def load(cls, spec: FlowSpec, claim: Claim, limit: int) -> Resumed:
        """Read what a pause holds; raises `Problem` 409 where it is none of today's."""
        pause = claim.pause
        try:
            request = spec.request_of(paused_request(pause))
            tape, answer = resume(pause, _answer(pause), limit=limit)
        except EffectFailed as failure:
            raise unavailable(failure) from failure
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise outdated() from error
        resumed = cls(claim, request, tape, answer)
        claim.so_far = resumed.so_far
        return resumed

    def so_far(self) -> bytes | None:
        """Encode what has been done by now; None where the tape does not know any more."""
        if self.tape.overflowed:
            return None
        return interrupted_tape(paused_request(self.claim.pause), self.tape, self.answer)

    async def hold(self, exchange: Exchange) -> None:
        """Hold the locks again that were held; raises `Problem` 404, 409, 410 or 503."""
        try:
            free = await exchange.acquire_locks()
            reply = await self.claim.confirm() if free else None
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            raise Problem(409, "session_busy", "another turn is under way")
        if reply != "claimed":
            raise unclaimed(reply)

    async def over(self, serving: Serving) -> None:
        """The exchange has ended: the pause is over, or whoever goes on next gets what was done."""
        if not serving.drives:
            await self.claim.give_back(None)  # turned away: nothing has been done
        elif _reached(serving) and not serving.left:
            await self.claim.finish()
        elif self.tape.overflowed:
            log.error("pause %s is over: its tape outgrew its bounds", self.claim.hitl_id)
            await self.claim.finish()  # to go on from it once more could do things twice
        else:
            await self.claim.give_back(self.so_far())


def _reached(serving: Serving) -> bool:
    """Whether it has come to its end, or to another question; what goes wrong after that is none.

    An end that tells of a failure is none: it can be tried again.
    """
    drive = serving.drive
    well = drive.ending is not None and drive.ending.outcome in {"completed", "paused"}
    return well or (drive.complete and not drive.reported)


def _answer(pause: Pause) -> HumanAnswer:
    if pause.answer is None:
        message = "its answer is gone"
        raise msgspec.ValidationError(message)
    return pause.answer


def suits(stack: Stack, resumed: Resumed | None) -> bool:
    """Whether a stack can serve what goes on: one behind an address would begin it anew."""
    return resumed is None or stack.powers.taped


async def settle_pauses(ticket: ExchangeContext) -> None:
    """Keep the tape a question waits with, now that it is whole; end or give back a claim."""
    try:
        if ticket.human is not None:
            await ticket.human.store_tape()
    except EffectFailed as failure:
        log.warning("a pause of %s keeps an older tape: %s", ticket.exchange, failure.fault.code)
    if ticket.resumed is not None:
        await ticket.resumed.over(ticket.serving)
