"""Remainders: what flows do after their end, finished by another router where theirs was killed.

Where `[exchanges] journal` is set, the tape of an exchange that goes on after its terminal frame is
stored before that frame is sent, as a pause without a question that its router has claimed. A claim
that is not renewed is a killed router's (docs/decisions/0034).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import msgspec

from contract.errors import EffectFailed
from contract.flow import Body, FlowSpec, Request, value_in
from contract.ports import Effects
from contract.records import ErrorRecord, RequestRecord
from effects.model import resolving_effects
from effects.stores import Pause, PauseStore
from effects.stores.pauses.transitions import REMAINDER
from effects.tape import (
    Entry,
    Exchange,
    Tape,
    TapeSession,
    interrupted_tape,
    read_paused,
    reopened,
    unknown_outcomes,
)
from router.config.schema import Settings
from router.resume.claims import LEASE_SECONDS, Claim
from router.resume.pauses import Pauses
from router.serving.run import Run, RunRequest
from router.serving.stack import Stack
from router.serving.stream import STOPPING, ServedStream
from router.stack import RunOutcome, StackName

log = logging.getLogger(__name__)

REST: Final = "what follows the end"
_KEEP_SECONDS: Final = 86_400.0
_MOST_ATTEMPTS: Final = 3
"""Of routers that ended while they finished one: what ends each of them would end the next."""
_LINGERED: Final = RunOutcome("failed", "stack", ErrorRecord("lingered"))
_LOST: Final = RunOutcome("failed", "world", ErrorRecord("claim_lost"))


async def store_remainder(
    store: PauseStore, stream: ServedStream, request: RequestRecord, now: float
) -> Claim | None:
    """Store what a stream's run has done, if it goes on after its end; returns the claim on it.

    Call it before the terminal frame is sent. A store that is away costs the remainder alone.
    """
    await asyncio.sleep(0)  # a run that has just sent its terminal frame needs a turn to end
    run, tape, context = stream.run, stream.exchange.tape, stream.context
    last = _last_before_end(run)
    if run.stopped or run.reported or tape.overflowed or last is None:
        return None
    body = context.request.body
    encode = partial(interrupted_tape, request, tape, last)
    pause = Pause(
        hitl_id=REMAINDER + context.exchange,
        exchange=context.exchange,
        flow=context.spec.name,
        stack=run.stack,
        created_at=now,
        expires_at=now + _KEEP_SECONDS,
        session_id=context.spec.conversation(body, context.request.session),
        user_id=value_in(body, "user_id"),
        tape=encode(),
        answer_site=last.site,
        answer_key=str(last.seq),
        state="claimed",
        owner=context.exchange,
        leased_until=now + LEASE_SECONDS,
    )
    try:
        await store.open(pause)
    except EffectFailed as failure:
        log.warning("the rest of %s is not stored: %s", context.exchange, failure.fault.code)
        return None
    claim = Claim(store, pause, context.exchange, pause.expires_at)
    claim.encode_tape = encode
    claim.on_lost = lambda: stream.run.fence(_LOST)
    return claim


def _last_before_end(run: Run) -> Entry | None:
    """Return the entry of the last call a run made before its terminal frame."""
    for play in reversed(run.session.plays):
        if play.frames < len(run.frames) and play.entry is not None:
            return play.entry if play.entry.end == "complete" else None
    return None


class _RemainderSession(TapeSession):
    """Plays the tape up to the end of the stream and goes on live; serves no client."""

    def effects(self) -> Effects:
        """Bundle the ports; what a stack stores of its own was stored before the end."""
        return replace(super().effects(), rehearsal=True)


@dataclass(slots=True)
class Remainders:
    """Finishes remainders of killed routers, one at a time.

    `live` makes the live ports for a flow and a request's body.
    """

    pauses: Pauses
    flows: Mapping[str, FlowSpec]
    stacks: Mapping[StackName, Stack]
    settings: Callable[[], Settings]
    live: Callable[[str, Body], Effects]
    clock: Callable[[], float]
    _run: Run | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def finish_all(self, owner: str) -> list[str]:
        """Finish those whose claims have run out, as `owner`; returns their exchanges.

        Raises `EffectFailed`.
        """
        finished = []
        for one in await self.pauses.store.waiting():
            left = one.hitl_id.startswith(REMAINDER) and one.state == "answered"
            if left and not self._closed and await self._finish(one.hitl_id, one.owner, owner):
                finished.append(one.hitl_id.removeprefix(REMAINDER))
        return finished

    def close(self) -> None:
        """Stop; what is being finished is left to the next router."""
        self._closed = True
        if self._run is not None:
            self._run.fence(STOPPING)

    async def _finish(self, hitl_id: str, last_owner: str, owner: str) -> bool:
        """Finish one; returns whether it is done. Owners are named after their attempt's number."""
        number, numbered, _ = last_owner.partition(":")
        attempt = int(number) + 1 if numbered else 1  # the router that served made none
        owner = f"{attempt}:{owner}"
        if await self.pauses.store.claim(hitl_id, owner, LEASE_SECONDS) != "claimed":
            return False
        try:
            pause = await self.pauses.store.get(hitl_id)
        except EffectFailed as failure:
            # Those behind it are not to wait; another router may have the key of this one.
            log.warning("the remainder %s cannot be opened: %s", hitl_id, failure.fault.code)
            await self.pauses.store.release(hitl_id, owner)
            return False
        if pause is None:
            return False
        claim = Claim(self.pauses.store, pause, owner, pause.expires_at)
        if attempt > _MOST_ATTEMPTS:
            return await self._give_up(claim)
        try:
            spec = self.flows[pause.flow]
            paused = read_paused(pause.tape)
            request = spec.request_of(paused.request)
            tape = reopened(paused, limit=self.settings().limits.exchange_bytes)
            last = tape.entries[int(pause.answer_key)]
        except (EffectFailed, msgspec.MsgspecError, UnicodeError, LookupError, ValueError) as error:
            log.warning("the rest of %s cannot be read: %s", pause.exchange, type(error).__name__)
            return await self._give_up(claim)
        claim.encode_tape = partial(interrupted_tape, paused.request, tape, last)
        await self.pauses.report_unknown(pause, unknown_outcomes(paused))
        match await self._do(claim, spec, request, tape, last):
            case "done":
                log.info("the rest of %s is done: its router was killed", pause.exchange)
                await claim.remove()
                return True
            case "later":
                await claim.give_back(claim.encode_tape())
                return False
            case "failed":
                return await self._give_up(claim)

    async def _give_up(self, claim: Claim) -> bool:
        pause = claim.pause
        log.error("the rest of %s is unknown, and not tried again", pause.exchange)
        await self.pauses.report_unknown(pause, [REST])
        await claim.remove()
        return False

    async def _do(
        self,
        claim: Claim,
        spec: FlowSpec,
        request: Request[Any, Any],
        tape: Tape,
        last: Entry,
    ) -> Literal["done", "later", "failed"]:
        """Let a stack do the rest; what is on the tape is not done again."""
        exchange = Exchange(
            resolving_effects(self.live(spec.name, request.body), request.body),
            tape,
            exchange_id=claim.pause.exchange,
            limits=self.settings().writes,
            journal=claim,
            monotonic=self.clock,
            after=tape.last_stamp,
        )
        try:
            if not await exchange.acquire_locks():
                return "later"
            for stack in self._able(spec, claim.pause.stack):
                name = f"rest {stack.name}"
                session = _RemainderSession(exchange, name, "resume", answer=last)
                order = RunRequest(
                    spec, stack.name, request, "fallback", exchange=claim.pause.exchange
                )
                run = stack.new_run(order, session)
                self._run, claim.on_lost = run, partial(run.fence, _LOST)
                run.start()
                if not await run.wait_finished(spec.grace_seconds):
                    run.fence(_LINGERED)
                if run.outcome is not None and run.outcome.kind == "completed":
                    return "done"
                session.fence()
                run.log_failure()
                if self._closed:
                    return "later"
        finally:
            self._run = None
            await exchange.close()
        return "failed"

    def _able(self, spec: FlowSpec, first: str) -> list[Stack]:
        """Return the stacks that can do what is left of an exchange, the `first` one first."""
        graph = self.settings().flows[spec.name].enable_langgraph
        return [
            stack
            for name, stack in sorted(self.stacks.items(), key=lambda item: item[0] != first)
            if stack.serves(spec) and stack.powers.taped and (graph or name != "graph")
        ]
