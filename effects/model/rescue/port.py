"""The model port that asks again, elsewhere, or not at all: a thin shell around the decisions."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, assert_never

import msgspec

from contract.errors import EffectFailed, Fault
from contract.model import Chunk, ModelCall, ModelInfo, PassedCall
from effects.circuit_breaker import Result
from effects.model.entry import ModelEntry
from effects.model.limits import Deadline, total_of
from effects.model.provider import OpenAIModel
from effects.model.registry import ModelRegistry
from effects.model.request import encode
from effects.model.rescue.breaker import ProviderBreakers, ProviderBreakerState
from effects.model.rescue.counts import Attempt, Followed, RescueCounts, Rescued
from effects.model.rescue.decisions import Ask, GiveUp, Means, Rescue, Step, Wait
from effects.model.rescue.policy import RescuePolicy, blames_provider
from effects.model.rescue.splicing import Said, Unlike
from effects.model.stream import RawAssembler, StreamAssembler

_LOG: Final = logging.getLogger(__name__)
_COMPLETED: Final = "completed"


class RescuingModel:
    """Implements `contract.ports.Model`; rescues what can be rescued, as docs/rescue.md says.

    `policy` may be replaced while it runs; answers that have begun keep theirs. `draw` gives
    numbers from 0 to 1 for the jitter, `sleep` waits so many seconds.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        policy: RescuePolicy | None = None,
        *,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._provider = OpenAIModel(registry)
        self._sleep = sleep
        policy = policy or RescuePolicy()
        self.breakers = ProviderBreakers(policy.breaker)
        self._means = Means(policy, self.breakers, draw)
        self.counts = RescueCounts()

    @property
    def policy(self) -> RescuePolicy:
        """The policy in force."""
        return self._means.policy

    @policy.setter
    def policy(self, policy: RescuePolicy) -> None:
        self._means = replace(self._means, policy=policy)
        self.breakers.policy = policy.breaker

    def breaker_states(self) -> list[ProviderBreakerState]:
        """Tell the state of all breakers now, ordered by provider and model."""
        return self.breakers.states(_now())

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Tell what is registered; raises `EffectFailed` (`unknown_model`)."""
        return self._registry.entry(model_id).info

    async def stream(self, site: str, call: ModelCall | PassedCall) -> AsyncGenerator[Chunk, None]:
        """Ask until there is an answer; raises `EffectFailed` when there is none to be had.

        A call that is passed on is answered in `RawChunk`s, but for those a splice has cut.
        Closing the generator, or cancelling who waits for it, drops everything at once.
        """
        assembler = RawAssembler if isinstance(call, PassedCall) else StreamAssembler
        entry = self._registry.entry(call.model_id)
        ends = total_of(entry.provider.limits, _now())
        rescue = self._rescue(entry, ends)
        said = Said()
        failed: _Attempt | None = None
        step: Step = rescue.next(_now())
        while True:
            ask = await self._granted(rescue, step)
            splice = said.splice()
            attempt = _Attempt(ask, self.breakers, self.counts)
            by = "" if ask.entry.model_id == call.model_id else ask.entry.model_id
            with attempt:
                body = encode(call, ask.entry.model)
                async with self._provider.answer(
                    ask.entry, body, ends, assembler=assembler
                ) as answer:
                    # Chunks are handed out here, and not by a stream inside a stream: each of
                    # them would pay for that.
                    while (chunks := await answer.next()) is not None:
                        if splice is not None:
                            chunks = splice.feed(chunks)
                        said.note(chunks)
                        if by and chunks:
                            chunks = [msgspec.structs.replace(chunks[0], by=by), *chunks[1:]]
                            by = ""
                        for chunk in chunks:
                            yield chunk
                    if splice is not None:
                        splice.end()
            if attempt.completed:
                if splice is not None and failed is not None:
                    self._count(failed, "spliced", ask.entry.model_id)
                return
            failed, step = attempt, self._after(rescue, attempt, said)

    def _rescue(self, entry: ModelEntry, ends: Deadline) -> Rescue:
        return Rescue(entry, self._registry.entries, self._means, ends.when)

    async def _granted(self, rescue: Rescue, step: Step) -> Ask:
        """Wait until an entry is to be asked; raises `EffectFailed` when none is."""
        while not isinstance(step, Ask):
            if isinstance(step, GiveUp):
                raise EffectFailed(step.fault)
            await self._sleep(step.seconds)
            step = rescue.next(_now())
        return step

    def _after(self, rescue: Rescue, attempt: _Attempt, said: Said) -> Step:
        """Decide what follows a failed attempt, and tell it."""
        fault = attempt.fault
        step = rescue.unlike() if fault is None else rescue.failed(fault, _now(), said.extent)
        done = _done(step, attempt)
        self._count(attempt, done, _then(step, attempt))
        _LOG.warning(
            "model %r of provider %r: %s; %s",
            attempt.entry.model,
            attempt.entry.provider.name,
            attempt.outcome,
            _told(step, done),
        )
        return step

    def _count(self, attempt: _Attempt, done: Rescued, then: str) -> None:
        line = Followed(attempt.entry.model_id, done, attempt.outcome, then)
        self.counts.followed[line] += 1


class _Attempt:
    """Sees to it that the end of one attempt is told to breaker and counters, whatever it is.

    `fault` is None where the attempt completed, or its answer was unlike the first one.
    """

    __slots__ = ("_breaker", "_counts", "_permit", "entry", "fault", "outcome")

    def __init__(self, ask: Ask, breakers: ProviderBreakers, counts: RescueCounts) -> None:
        self.entry = ask.entry
        self.fault: Fault | None = None
        self.outcome = _COMPLETED
        self._breaker, self._permit = breakers.of(ask.entry), ask.permit
        self._counts = counts

    @property
    def completed(self) -> bool:
        """Whether the answer is whole."""
        return self.outcome is _COMPLETED

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        result: Result = "ignored"
        match error:
            case None:
                result = "success"
            case EffectFailed(fault=fault):
                self.fault, self.outcome = fault, fault.code
                result = "failure" if blames_provider(fault) else "ignored"
            case Unlike():
                self.outcome = "unlike"
            case _:
                self.outcome = "left"
        self._breaker.record(self._permit, result, _now())
        entry = self.entry
        line = Attempt(entry.model_id, entry.provider.name, entry.model, self.outcome)
        self._counts.attempts[line] += 1
        return self.outcome != "left"


def _now() -> float:
    return asyncio.get_running_loop().time()


def _done(step: Step, attempt: _Attempt) -> Rescued:
    match step:
        case Wait():
            return "retried"
        case Ask(entry):
            return "retried" if entry is attempt.entry else "failed_over"
        case GiveUp():
            return "given_up" if attempt.fault is not None else "not_spliced"
        case _:
            assert_never(step)


def _then(step: Step, attempt: _Attempt) -> str:
    match step:
        case Wait():
            return attempt.entry.model_id
        case Ask(entry):
            return entry.model_id
        case GiveUp():
            return ""
        case _:
            assert_never(step)


def _told(step: Step, done: Rescued) -> str:
    match step:
        case Wait(seconds):
            return f"asked again in {seconds:.2f} s"
        case Ask(entry):
            return f"{entry.model!r} of {entry.provider.name!r} is asked"
        case GiveUp():
            return done.replace("_", " ")
        case _:
            assert_never(step)
