"""Pauses: exchanges that wait for a human's answer, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from contract.errors import EffectFailed
from contract.flow import FlowSpec, Request
from contract.human import HumanAnswer, check_answer
from contract.records import RequestRecord
from effects.stores import Pause, PauseStore
from effects.stores.pauses.transitions import REMAINDER
from effects.tape import (
    Entry,
    Exchange,
    PauseOrigin,
    PausingHuman,
    Tape,
    interrupted_tape,
    read_paused,
    resume,
    unknown_outcomes,
)
from router.context import ExchangeContext
from router.problems import Problem
from router.resume.claims import LEASE_SECONDS, Claim
from router.serving.stream import ServedStream

log = logging.getLogger(__name__)

_LISTED = 20
"""Faults of an answer that are listed: a form has fewer fields, an answer may have any number."""

_PROBLEMS = {
    "unknown": (404, "unknown_pause", "no question with this id is known"),
    "taken": (409, "continued_already", "this pause is being resumed already"),
    "finished": (409, "finished", "this pause has been resumed, to the end"),
    "unanswered": (409, "unanswered", "the question has no answer yet"),
    "conflict": (409, "answered_otherwise", "the question has another answer already"),
    "outcome_unknown": (
        409,
        "outcome_unknown",
        "it outgrew its bounds: what it did is unknown",
    ),
    "pause_outdated": (409, "pause_outdated", "it was paused by a version that is read no more"),
    "expired": (410, "expired", "this question is not open any more"),
}


def _problem(reply: str = "unknown") -> Problem:
    return Problem(*_PROBLEMS.get(reply, _PROBLEMS["unknown"]))


def _unavailable(failure: EffectFailed) -> Problem:
    if failure.fault.code in _PROBLEMS:
        return _problem(failure.fault.code)
    return Problem(503, failure.fault.code, "the pauses cannot be reached", retry_after=1)


def log_unknown(flow: str, hitl_id: str, tool: str) -> None:
    """Log that a tool had begun when its router was killed."""
    log.error("outcome unknown: flow=%s pause=%s tool=%s; it is not run again", flow, hitl_id, tool)


@dataclass(frozen=True, slots=True)
class ResumedPause:
    """A paused exchange that goes on: its claim, its request, its tape, the answer on that.

    `unknown` names what had begun when an earlier router was killed: tools, workers' actions.
    """

    claim: Claim
    request: Request[Any, Any]
    stored_request: RequestRecord
    tape: Tape
    answer: Entry
    unknown: tuple[str, ...] = ()

    @classmethod
    def load(cls, spec: FlowSpec, claim: Claim, limit: int) -> ResumedPause:
        """Read what a pause holds; raises `Problem` 409 where another version wrote it."""
        pause = claim.pause
        if pause.answer is None:
            raise _problem()
        try:
            paused = read_paused(pause.tape)
            request, unknown = spec.request_of(paused.request), unknown_outcomes(paused)
            tape, answer = resume(pause, pause.answer, limit=limit)
        except EffectFailed as failure:
            raise _unavailable(failure) from failure
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = _problem("pause_outdated")
            raise problem from error
        resumed = cls(claim, request, paused.request, tape, answer, unknown)
        claim.encode_tape = resumed.encode_tape
        return resumed

    def encode_tape(self) -> bytes:
        """Encode the tape so far."""
        return interrupted_tape(self.stored_request, self.tape, self.answer)

    async def lock(self, exchange: Exchange) -> None:
        """Take the locks again that were held; raises `Problem` 404, 409, 410 or 503."""
        try:
            free = await exchange.acquire_locks()
            reply = await self.claim.confirm() if free else None
        except EffectFailed as failure:
            raise Problem(503, failure.fault.code, retry_after=1) from failure
        if reply is None:
            raise Problem(409, "session_busy", "another turn is under way")
        if reply != "claimed":
            raise _problem(reply)

    async def settle(self, stream: ServedStream) -> None:
        """The exchange has ended: finish the pause, or give it back with what was done."""
        if not stream.runs:
            await self.claim.give_back(None)  # refused before anything was done
        elif _reached_end(stream) and not stream.disconnected:
            await self.claim.finish()
        elif self.tape.overflowed:
            log.error("pause %s is finished: its tape outgrew its bounds", self.claim.hitl_id)
            await self.claim.finish()  # to resume it once more could do things twice
        else:
            await self.claim.give_back(self.encode_tape())


@dataclass(slots=True)
class Pauses:
    """The pauses in a store, open for `seconds`; `wall` is in seconds since the epoch.

    `on_unknown` is called, in a thread, with flow, pause and the name of a tool, or of a worker's
    action, where a kill left it unknown what that has done.
    """

    store: PauseStore
    seconds: float
    wall: Callable[[], float]
    on_unknown: Callable[[str, str, str], None] = log_unknown
    _humans: dict[str, PausingHuman] = field(default_factory=dict, init=False)
    _resumed: dict[str, ResumedPause] = field(default_factory=dict, init=False)

    def human(self, origin: PauseOrigin, tape: Tape) -> PausingHuman:
        """Return the human port of an exchange that may pause."""
        origin = replace(origin, seconds=self.seconds)
        human = PausingHuman(self.store, tape, origin, wall=self.wall)
        self._humans[origin.exchange] = human
        return human

    async def respond(self, spec: FlowSpec, hitl_id: str, answer: HumanAnswer) -> None:
        """Store the answer to a question; raises `Problem` 404, 409, 410, 422 or 503."""
        try:
            pause = await self._find(spec, hitl_id)
            faults = check_answer(pause.question.form, answer) if pause.question else ()
            if faults:
                listed = "; ".join(f"{one.field!r}: {one.code}" for one in faults[:_LISTED])
                raise Problem(422, "invalid_answer", listed)
            reply = await self.store.respond(hitl_id, answer)
        except EffectFailed as failure:
            raise _unavailable(failure) from failure
        if reply not in {"accepted", "same"}:
            raise _problem(reply)

    async def resume(self, spec: FlowSpec, hitl_id: str, holder: str, limit: int) -> ResumedPause:
        """Claim an answered pause and load what it holds; raises `Problem`.

        `holder` is what no other claim is made by: the exchange has no id before it is assigned.
        """
        try:
            found = await self._find(spec, hitl_id)
            reply = await self.store.claim(hitl_id, holder, LEASE_SECONDS)
            if reply != "claimed":
                raise _problem(reply)
            try:
                pause = await self.store.get(hitl_id)
            except EffectFailed:
                with suppress(EffectFailed):
                    await self.store.release(hitl_id, holder)
                raise
        except EffectFailed as failure:
            raise _unavailable(failure) from failure
        if pause is None:
            raise _problem()
        claim = Claim(self.store, pause, holder, found.expires_at)
        try:
            resumed = ResumedPause.load(spec, claim, limit)
        except BaseException:
            await asyncio.shield(claim.release())
            raise
        return resumed

    def resumed(self, pause: ResumedPause, exchange: str) -> None:
        """Note the exchange that goes on with a pause: `settle` ends its claim, too."""
        self._resumed[exchange] = pause

    async def lock(self, resumed: ResumedPause, exchange: Exchange) -> None:
        """Lock what it goes on with, as `ResumedPause.lock`; report unknown outcomes."""
        await resumed.lock(exchange)
        await self.report_unknown(resumed.claim.pause, resumed.unknown)

    async def report_unknown(self, pause: Pause, names: Iterable[str]) -> None:
        """Call `on_unknown` for each of a pause's calls whose outcome is unknown."""
        for name in names:
            await asyncio.to_thread(self.on_unknown, pause.flow, pause.hitl_id, name)

    async def expire_others(self, context: ExchangeContext) -> None:
        """Expire the pauses of a session that goes on with a new turn."""
        request = context.request
        session = context.spec.conversation(request.body, request.session)
        if session is None or context.resumes:
            return
        try:
            await self.store.expire_session(context.spec.name, session, but=context.exchange)
        except EffectFailed as failure:
            log.warning("the pauses of a session stay open: %s", failure.fault.code)

    async def settle(self, exchange: str, stream: ServedStream) -> int:
        """Store the whole tape of a question that was asked; finish or give back a claim.

        Returns the bytes of the row in which the exchange waits; 0 where it does not.
        """
        human, resumed = self._humans.pop(exchange, None), self._resumed.pop(exchange, None)
        try:
            if human is not None:
                await human.store_tape()
        except EffectFailed as failure:
            log.warning("a pause of %s keeps an older tape: %s", exchange, failure.fault.code)
        if resumed is not None:
            await resumed.settle(stream)
        return human.stored_bytes if human is not None else 0

    async def _find(self, spec: FlowSpec, hitl_id: str) -> Pause:
        pause = await self.store.get(hitl_id)
        if pause is None or pause.flow != spec.name or hitl_id.startswith(REMAINDER):
            raise _problem()
        return pause


def _reached_end(stream: ServedStream) -> bool:
    """Whether it came to its end, or to another question; a reported failure can be tried again."""
    run = stream.run
    done = run.outcome is not None and run.outcome.kind in {"completed", "paused"}
    return done or (run.complete and not run.reported)
