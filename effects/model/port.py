"""The model port on OpenAI-compatible providers, and wrappers of any model port.

`RescuingModel` calls again, another model, or not at all, as docs/rescue.md says: a thin shell
around the decisions in `effects.model.retry`. All of it stands below the recorder: however many
attempts there are, one call is one entry on the tape.

The SDK brings authentication, its headers and its connections; requests are encoded and chunks
decoded here, because its models of every message and chunk cost nine tenths of the processor time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal, NamedTuple, assert_never, cast

import msgspec

from contract.errors import EffectFailed, Fault
from contract.flow import Body
from contract.model import (
    Chunk,
    ImagePart,
    ImageUrl,
    Message,
    ModelCall,
    ModelInfo,
    PassedCall,
    TextPart,
    UserMessage,
    field_of,
)
from contract.ports import Effects, Model
from effects.loop_time import loop_now
from effects.model.chunks import encode_call
from effects.model.hedge import ModelAttempt, race
from effects.model.registry import ModelRegistry
from effects.model.retry import (
    CallModel,
    GiveUp,
    ProviderBreakers,
    ProviderBreakerState,
    Rescue,
    RescueMeans,
    RescuePolicy,
    RetryAfter,
    RetryStep,
    remedy,
)
from effects.model.splice import AnswerMismatch, Extent, SentAnswer
from effects.model.stream import (
    CallDeadline,
    RawAssembler,
    StreamAssembler,
    read_answer,
    total_deadline,
)
from effects.model.tokens import count_tokens

Rescued = Literal["hedged", "retried", "failed_over", "spliced", "not_spliced", "given_up"]

log = logging.getLogger(__name__)


class AttemptLine(NamedTuple):
    """One counter of attempts: which model was called, and what came of it.

    `outcome` is `completed`, `left` (the caller cancelled, or another model spoke first), `unlike`
    (a second answer that did not begin as the first) or the code of the fault.
    """

    model_id: str
    provider: str
    model: str
    outcome: str


class RescueLine(NamedTuple):
    """One counter of what followed an attempt that did not complete.

    `model_id` is the model that failed, `reason` how, `then` the one called next: "" for none. A
    model that was `hedged` had not failed yet: its `reason` is `left`.
    """

    model_id: str
    rescued: Rescued
    reason: str
    then: str = ""


@dataclasses.dataclass(slots=True, eq=False)
class RescueCounts:
    """Attempts and rescues since the start: failed attempts are no completions, but not hidden."""

    attempts: Counter[AttemptLine] = dataclasses.field(default_factory=Counter)
    followed: Counter[RescueLine] = dataclasses.field(default_factory=Counter)

    @property
    def rescues(self) -> Counter[Rescued]:
        """What followed, by kind alone."""
        kinds: Counter[Rescued] = Counter()
        for line, count in self.followed.items():
            kinds[line.rescued] += count
        return kinds


class RescuingModel:
    """Implements `contract.ports.Model`; rescues what can be rescued.

    `policy` may be replaced while it runs; answers that have begun keep theirs. `draw` returns
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
        self._sleep = sleep
        policy = policy or RescuePolicy()
        self.breakers = ProviderBreakers(policy.breaker)
        self.counts = RescueCounts()
        self._means = RescueMeans(policy, self.breakers, draw)

    @property
    def policy(self) -> RescuePolicy:
        """The policy in force."""
        return self._means.policy

    @policy.setter
    def policy(self, policy: RescuePolicy) -> None:
        self._means = dataclasses.replace(self._means, policy=policy)
        self.breakers.policy = policy.breaker

    def breaker_states(self) -> list[ProviderBreakerState]:
        """Return the state of all breakers now, ordered by provider and model."""
        return self.breakers.states(loop_now())

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Return what is registered; raises `EffectFailed` (`unknown_model`)."""
        return self._registry.entry(model_id).info

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count by the provider's name of the model; raises `EffectFailed` (`unknown_model`)."""
        return await count_tokens(self._registry.entry(model_id).model, texts)

    async def stream(self, site: str, call: ModelCall | PassedCall) -> AsyncGenerator[Chunk, None]:
        """Call models until one answers; raises `EffectFailed` when there is no answer to be had.

        A call that is passed on is answered in `RawChunk`s, but for those a splice has cut. Of a
        whole call nothing is yielded before the answer is complete: until then another may serve.
        Closing the generator, or cancelling the task that reads it, drops everything at once.
        """
        named = self._registry.entry(call.model_id)
        ends = total_deadline(named.provider.limits, loop_now())
        rescue = Rescue(named, self._registry.entries, self._means, ends.when)
        sent = SentAnswer()
        held: list[Chunk] = []
        failed: ModelAttempt | None = None
        step: RetryStep = rescue.next(loop_now())
        while True:
            splice = sent.splice()
            attempt = await self._next_attempt(rescue, step, call, ends, may_hedge=splice is None)
            entry = attempt.entry
            by = "" if entry.model_id == call.model_id else entry.model_id
            held.clear()
            try:
                async with aclosing(attempt.answer) as pieces:
                    # Chunks are yielded here, and not by a stream inside a stream: each of them
                    # would pay for that.
                    async for piece in pieces:
                        chunks = piece if splice is None else splice.feed(piece)
                        if by and chunks:
                            chunks[0] = msgspec.structs.replace(chunks[0], by=by)
                            by = ""
                        if call.whole:
                            held += chunks
                            continue
                        sent.note(chunks)
                        for chunk in chunks:
                            yield chunk
                    if splice is not None:
                        splice.end()
                attempt.outcome, attempt.result = "completed", "success"
            except AnswerMismatch:
                attempt.outcome = "unlike"
            except EffectFailed as error:
                attempt.fail(error.fault)
            finally:
                self._record(attempt)
            if attempt.result == "success":
                if splice is not None and failed is not None:
                    self._count(failed, "spliced", entry.model_id)
                for chunk in held:
                    yield chunk
                return
            # A broken answer that was held back is called for again as one that was sent is.
            extent = "something" if held else sent.extent
            failed, step = attempt, self._after(rescue, attempt, extent)

    async def _next_attempt(
        self,
        rescue: Rescue,
        step: RetryStep,
        call: ModelCall | PassedCall,
        ends: CallDeadline,
        *,
        may_hedge: bool,
    ) -> ModelAttempt:
        """Begin what is due, after its wait; raises `EffectFailed` where nothing is."""
        while isinstance(step, RetryAfter):
            await self._sleep(step.seconds)
            step = rescue.next(loop_now())
        if isinstance(step, GiveUp):
            raise EffectFailed(step.fault)
        attempt = self._attempt(rescue, step, call, ends)
        if may_hedge and (seconds := self._means.policy.hedge) is not None:
            return await self._race(rescue, attempt, call, ends, seconds)
        return attempt

    def _attempt(
        self, rescue: Rescue, step: CallModel, call: ModelCall | PassedCall, ends: CallDeadline
    ) -> ModelAttempt:
        entry = step.entry
        limits = entry.limits(fallback_ready=rescue.ready(loop_now()) is not None)
        body = encode_call(call, entry.model)
        assembler = RawAssembler() if isinstance(call, PassedCall) else StreamAssembler()
        answer = read_answer(self._registry, entry, body, ends, assembler, limits)
        return ModelAttempt(entry, step.permit, answer)

    async def _race(
        self,
        rescue: Rescue,
        first: ModelAttempt,
        call: ModelCall | PassedCall,
        ends: CallDeadline,
        seconds: float,
    ) -> ModelAttempt:
        """Return the attempt that speaks first, of this one and a fallback called beside it."""

        def call_second() -> ModelAttempt | None:
            step = rescue.hedge(loop_now())
            if step is None:
                return None
            self._count(first, "hedged", step.entry.model_id)
            return self._attempt(rescue, step, call, ends)

        def went_on(failed: ModelAttempt, error: EffectFailed) -> bool:
            if failed is first and remedy(error.fault, "nothing") == "stop":
                return False
            failed.fail(error.fault)
            self._record(failed)
            rescue.failed_beside(failed.entry, error.fault)
            return True

        chosen = await race(first, seconds, call_second, went_on, self._record)
        if chosen is not first:
            rescue.turn_to(chosen.entry)
        return chosen

    def _record(self, attempt: ModelAttempt) -> None:
        """Report an attempt that has ended to its breaker, and count it."""
        entry = attempt.entry
        self.breakers.of(entry).record(attempt.permit, attempt.result, loop_now())
        line = AttemptLine(entry.model_id, entry.provider.name, entry.model, attempt.outcome)
        self.counts.attempts[line] += 1

    def _after(self, rescue: Rescue, attempt: ModelAttempt, extent: Extent) -> RetryStep:
        """Decide what follows a failed attempt; count and log it."""
        fault, entry = attempt.fault, attempt.entry
        step = rescue.mismatched() if fault is None else rescue.failed(fault, loop_now(), extent)
        rescued: Rescued
        match step:
            case RetryAfter(seconds):
                rescued, then = "retried", entry.model_id
                detail = f"called again in {seconds:.2f} s"
            case CallModel(other):
                rescued = "retried" if other is entry else "failed_over"
                then, detail = other.model_id, f"{other.model!r} of {other.provider.name!r} is next"
            case GiveUp():
                rescued = "given_up" if fault is not None else "not_spliced"
                then, detail = "", rescued.replace("_", " ")
            case _:
                assert_never(step)
        self._count(attempt, rescued, then)
        log.warning(
            "model %r of provider %r: %s; %s",
            entry.model,
            entry.provider.name,
            attempt.outcome,
            detail,
        )
        return step

    def _count(self, attempt: ModelAttempt, rescued: Rescued, then: str) -> None:
        line = RescueLine(attempt.entry.model_id, rescued, attempt.outcome, then)
        self.counts.followed[line] += 1


class LimitedModel:
    """Implements `contract.ports.Model` on another; `most` answers are under way at once."""

    def __init__(self, model: Model, most: int) -> None:
        self._model = model
        self._turns = asyncio.Semaphore(most)

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Look up as the other does; no answer is under way for that."""
        return await self._model.lookup(site, model_id)

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count as the other does; no answer is under way for that."""
        return await self._model.count(site, model_id, texts)

    async def stream(self, site: str, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Wait for a turn, then call; closing the generator passes the turn on."""
        async with self._turns:
            answer = cast("AsyncGenerator[Chunk, None]", self._model.stream(site, call))
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvingModel:
    """A model for one request that gets what the request brought where a call only names it.

    The tape keeps the name: images of megabytes would fill it, and a tape that is full cannot
    pause. `named` are the fields of the body that calls may name.
    """

    model: Model
    body: Body
    named: tuple[str, ...]

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Call the model, with what the call names in its place; fault `model_bad_request`."""
        messages = tuple(map(self._message, call.messages))
        return self.model.stream(site, msgspec.structs.replace(call, messages=messages))

    async def lookup(self, site: str, model_id: str) -> ModelInfo:
        """Return what is registered under an id."""
        return await self.model.lookup(site, model_id)

    async def count(
        self, site: str, model_id: str, texts: tuple[str, ...]
    ) -> tuple[int, ...] | None:
        """Count tokens."""
        return await self.model.count(site, model_id, texts)

    def _message(self, message: Message) -> Message:
        if not isinstance(message, UserMessage) or isinstance(message.content, str):
            return message
        return UserMessage(tuple(map(self._part, message.content)))

    def _part(self, part: TextPart | ImagePart) -> TextPart | ImagePart:
        field = field_of(part.image_url.url) if isinstance(part, ImagePart) else None
        if field is None:
            return part
        if field not in self.named:
            raise EffectFailed(Fault("model_bad_request", data={"reason": "reference"}))
        return ImagePart(ImageUrl(getattr(self.body, field)))


def resolving(model: Model, body: Body) -> Model:
    """Return the model as a request may call it, naming fields in `by_reference` of its struct."""
    named: tuple[str, ...] = getattr(type(body), "by_reference", ())
    return ResolvingModel(model, body, named) if named else model


def resolving_effects(live: Effects, body: Body) -> Effects:
    """Return the live ports as a request may call them."""
    model = resolving(live.model, body)
    return live if model is live.model else dataclasses.replace(live, model=model)
