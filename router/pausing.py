"""Pauses as a router sees them: who may go on, and what becomes of a pause when somebody has."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from contract.errors import EffectFailed
from contract.forms import check_answer
from effects.suspending import Asking, SuspendingHuman
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from contract.flow import FlowSpec
    from contract.human import Answer
    from effects.human import Pause, PauseStore
    from effects.tape import Tape

log = logging.getLogger(__name__)

LEASE = 30.0
"""Seconds after which a pause may be gone on from by others when nobody renews its claim."""
_TOLD = 20
"""Of what is wrong with an answer: no form has more fields, an answer may have any number."""
_RENEWALS = 3
"""Of a claim within its lease: one that fails is made up for."""
_RESTS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the attempts to keep the end of a claim: while its lease lasts, mostly."""


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

    async def respond(self, spec: FlowSpec, hitl_id: str, answer: Answer) -> None:
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
            await self._find(spec, hitl_id)
            reply = await self.store.claim(hitl_id, owner, LEASE)
        except EffectFailed as failure:
            raise unavailable(failure) from failure
        if reply != "claimed":
            raise _unclaimed(reply)
        try:
            pause = await self.store.get(hitl_id)
        except EffectFailed as failure:
            with suppress(EffectFailed):
                await self.store.give_back(hitl_id, owner)
            raise unavailable(failure) from failure
        if pause is None or pause.answer is None:
            raise unknown()
        return Claim(self.store, pause, owner)

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


def _nothing() -> None:
    return None


class Claim:
    """A pause somebody goes on from; renewed until it is finished or given back."""

    def __init__(self, store: PauseStore, pause: Pause, owner: str) -> None:
        self.pause = pause
        self.so_far: Callable[[], bytes | None] = _nothing
        """Gives the tape as it is now, to be kept with each renewal: this process may die."""
        self._store = store
        self._owner = owner
        self._over = False
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="renew claim")

    @property
    def hitl_id(self) -> str:
        """Which pause it is."""
        return self.pause.hitl_id

    async def stands(self) -> bool:
        """Whether it is still ours: a session is deleted with its pauses. Raises `EffectFailed`."""
        return await self._store.renew(self.hitl_id, self._owner, LEASE)

    async def finish(self) -> None:
        """The exchange has gone on to its end, or to another question."""
        await self._end(self._finish, _RESTS)

    async def give_back(self, tape: bytes | None) -> None:
        """It broke off: whoever goes on next gets the tape, where there is more on it by now."""
        await self._end(partial(self._store.give_back, self.hitl_id, self._owner, tape), _RESTS)

    async def let_go(self) -> None:
        """Nobody went on; tried once, for somebody waits to be told."""
        await self._end(partial(self._store.give_back, self.hitl_id, self._owner), ())

    async def _end(self, keep: Callable[[], Awaitable[object]], rests: Iterable[float]) -> None:
        # A client may swallow a cancellation that meets its answer: then the flag ends it.
        self._over = True
        self._renewing.cancel()
        for rest in (*rests, None):
            try:
                await keep()
            except EffectFailed as failure:
                if rest is None:
                    log.warning("the end of pause %s: %s", self.hitl_id, failure.fault.code)
                    return
            else:
                return
            await asyncio.sleep(rest)

    async def _finish(self) -> None:
        """Finish it, also where somebody took it while it could not be renewed.

        Whoever did could not go on, as the session was not free, and has given it back since.
        """
        if await self._store.finish(self.hitl_id, self._owner):
            return
        if await self._store.claim(self.hitl_id, self._owner, LEASE) == "claimed":
            await self._store.finish(self.hitl_id, self._owner)

    async def _renew(self) -> None:
        while not self._over:
            await asyncio.sleep(LEASE / _RENEWALS)
            try:
                kept = await self._store.renew(self.hitl_id, self._owner, LEASE, self.so_far())
            except EffectFailed as failure:
                log.warning("pause %s is not renewed: %s", self.hitl_id, failure.fault.code)
                continue
            if not kept:
                log.warning("pause %s was lost before it was over", self.hitl_id)
                return


def _check(pause: Pause, answer: Answer) -> None:
    question = pause.question
    wrong = check_answer(question.form, answer) if question else ()
    if wrong:
        said = "; ".join(f"{problem.field!r}: {problem.code}" for problem in wrong[:_TOLD])
        raise Problem(422, "invalid_answer", said)


def _unclaimed(reply: Any) -> Problem:  # noqa: ANN401 - what is left of a closed set
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
