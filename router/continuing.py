"""Going on from a pause: the request and the tape it holds, and what its end makes of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import EffectFailed
from effects.tape import broken_off, held, request_of, resume
from router.pausing import outdated, unavailable, unclaimed
from router.problems import Problem

if TYPE_CHECKING:
    from contract.flow import FlowSpec, Request
    from contract.human import HumanAnswer
    from effects.human import Pause
    from effects.tape import Entry, Exchange, Tape
    from router.claims import Claim
    from router.serving import Serving
    from router.stacks import Stack
    from router.ticket import Ticket


log = logging.getLogger(__name__)


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
            request = spec.asked(request_of(pause))
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
        return broken_off(request_of(self.claim.pause), self.tape, self.answer)

    async def hold(self, exchange: Exchange) -> None:
        """Hold the locks again that were held; raises `Problem` 404, 409, 410 or 503."""
        try:
            free = await exchange.hold(held(self.tape))
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


async def settle_pauses(ticket: Ticket) -> None:
    """Keep the tape a question waits with, now that it is whole; end or give back a claim."""
    try:
        if ticket.human is not None:
            await ticket.human.keep_tape()
    except EffectFailed as failure:
        log.warning("a pause of %s keeps an older tape: %s", ticket.exchange, failure.fault.code)
    if ticket.resumed is not None:
        await ticket.resumed.over(ticket.serving)
