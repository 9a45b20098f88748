"""A stack in this process: its flows are called, and every effect goes to the tape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from contract.grammar import GrammarCheck
from effects.tasks import contained
from router.serving.backpressure import RanAway
from router.serving.run import Run
from router.stack import IN_PROCESS, Powers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from contract.flow import Event, Flow, FlowSpec
    from effects.tape import TapeSession
    from router.serving.run import Order
    from router.stack import StackName

MOST_UNPROMPTED = 4 << 20
"""Bytes of frames a stack may produce of its own accord, between two things it hears from the
tape: one that produces more has run away."""


@dataclass(frozen=True, slots=True)
class LocalStack:
    """Flows by name, and the fingerprint of their code."""

    name: StackName
    flows: Mapping[str, Flow]
    fingerprint: str
    forget: Callable[[str], Awaitable[None]] | None = None
    """Removes what the stack keeps of a conversation of its own; None where it keeps nothing."""

    @property
    def powers(self) -> Powers:
        """All there are: its flows are on the tape."""
        return IN_PROCESS

    def serves(self, flow: FlowSpec) -> bool:
        """Whether there is code for a flow; for one that is only declared there is none."""
        return flow.events is not None and flow.name in self.flows

    def drive(
        self, order: Order, run: TapeSession, stamp: Callable[[], int], *, strict: bool = True
    ) -> FlowDrive:
        """Make a drive of one flow for one request."""
        return FlowDrive(order, self.flows[order.spec.name], run, stamp, strict=strict)


class FlowDrive(Run):
    """Drives a flow in this process; strict, it ends where the flow breaks its grammar."""

    def __init__(
        self, order: Order, flow: Flow, run: TapeSession, stamp: Callable[[], int], *, strict: bool
    ) -> None:
        super().__init__(order, run, stamp)
        self._flow = flow
        self._check = GrammarCheck(order.spec.grammar) if strict else None

    async def _produce(self) -> None:
        with contained(self._crashed):
            flow = self._flow(self.order.request, self.run.effects())
            events = cast("AsyncGenerator[Event, None]", flow)
            try:
                async for event in events:
                    self._take(event)
                    if self.pace.due and not self.complete:
                        await self.pace.keep()
            finally:
                await events.aclose()

    def _crashed(self, error: BaseException) -> None:
        """A task of the flow's asked for the end of the process; nobody may be waiting for it."""
        self.finish(self._ending_of(error))

    def _take(self, event: Event) -> None:
        spec = self.spec
        name = spec.name_of(event)
        if self._check is not None:
            self._check.event(name, spec.text_of(event))
        if name in spec.decoder.failures:
            self.reported = True
        data = spec.encode(event)
        self._accept(event, data)
        if not self.run.past_answer:
            self.old += 1
            self.pace.spare(len(data))  # the client has had it: it takes none before the answer
        if self.run.unprompted > MOST_UNPROMPTED:
            raise RanAway(self.run.unprompted, "in a row were prompted by nothing")
