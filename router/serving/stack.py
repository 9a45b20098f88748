"""Stacks that can be run: the protocol, and the one whose flows run in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

from contract.flow import Flow, FlowSpec
from contract.grammar import GrammarCheck
from contract.wire import WireReader
from effects.tape import TapeSession
from effects.tasks import contained
from router.serving.frames import UNPROMPTED_LIMIT, Frame, RanAway
from router.serving.run import Run, RunRequest
from router.stack import IN_PROCESS, Powers, StackName


class Stack(Protocol):
    """An implementation of flows, in this process or behind an address."""

    @property
    def name(self) -> StackName:
        """Which of the two it is."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest that changes with its code."""
        ...

    @property
    def powers(self) -> Powers:
        """What can be done with it beyond serving."""
        ...

    def serves(self, flow: FlowSpec) -> bool:
        """Whether it has a flow."""
        ...

    def new_run(self, request: RunRequest, session: TapeSession, *, strict: bool = True) -> Run:
        """Make a run, not yet started; a strict one fails where it breaks its flow's grammar."""
        ...


Bind = Callable[[RunRequest, TapeSession], AbstractContextManager[None]]
"""Returns the block in which a run's flow is driven."""


def unbound(request: RunRequest, session: TapeSession) -> AbstractContextManager[None]:
    """Return a block that does nothing."""
    del request, session
    return nullcontext()


@dataclass(frozen=True, slots=True)
class LocalStack:
    """Flows by name, and the fingerprint of their code."""

    name: StackName
    flows: Mapping[str, Flow]
    fingerprint: str
    forget: Callable[[str], Awaitable[None]] | None = None
    """Removes what the stack itself stores of a conversation; None where it stores nothing."""
    powers: Powers = IN_PROCESS
    bind: Bind = unbound
    """Lets code of a run know its exchange."""

    def serves(self, flow: FlowSpec) -> bool:
        """Whether there is code for a flow."""
        return flow.name in self.flows

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which it can be run."""
        return nullcontext()

    def new_run(self, request: RunRequest, session: TapeSession, *, strict: bool = True) -> Run:
        """Make a run of one flow for one request."""
        return LocalRun(request, session, self.flows[request.spec.name], self.bind, strict=strict)


def _failure_code(spec: FlowSpec, frame: bytes) -> str:
    """Read the code of the failure that a frame reports, "" where it has none."""
    codes = [event.failure for event in WireReader(spec.decoder).feed(frame)]
    return next(filter(None, codes), "")


class LocalRun(Run):
    """Runs a flow in this process."""

    def __init__(
        self,
        request: RunRequest,
        session: TapeSession,
        flow: Flow,
        bind: Bind = unbound,
        *,
        strict: bool,
    ) -> None:
        super().__init__(request, session, in_stretch=True)
        self._flow = flow
        self._bind = bind
        session.frames = 0  # its calls and its frames come in one order
        # The frames of a declared flow are passed on, as those of a service are.
        checked = strict and not request.spec.declared
        self._check = GrammarCheck(request.spec.grammar) if checked else None

    async def _produce(self) -> None:
        await self._drive()
        if self.spec.declared and self.frames and not self.complete:
            self.complete = self.reported or not self.spec.grammar.terminal

    async def _drive(self) -> None:
        spec, session, check = self.spec, self.session, self._check
        with contained(self._exit_requested), self._bind(self.request, session):
            flow = self._flow(self.request.request, session.effects())
            events = cast("AsyncGenerator[object, None]", flow)
            try:
                async for made in events:
                    event = spec.event_of(made)
                    name = spec.name_of(event)
                    if check is not None:
                        check.event(name, spec.text_of(event))
                    data = spec.encode(event)
                    if name in spec.decoder.failures:
                        self.reported = True
                        self.failure = _failure_code(spec, data)
                    frame = Frame(session.stamp(), data, event)
                    self._accept((frame,), len(data), last=name in spec.grammar.terminal)
                    if not session.past_answer:
                        self.before_pause += 1
                        self.backpressure.skip(len(data))
                    if session.unprompted > UNPROMPTED_LIMIT:
                        raise RanAway(session.unprompted, "in a row were prompted by nothing")
                    if self.backpressure.due and not self.complete:
                        await self.backpressure.yield_turn()
            finally:
                await events.aclose()

    def _exit_requested(self, error: BaseException) -> None:
        """A task of the flow raised SystemExit or KeyboardInterrupt: end this run at once."""
        self.finish(self._failed(error))
