"""Stacks: the implementations a router can hand a request to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import FlowSpec
    from effects.tape import TapeSession
    from router.serving.run import Order, Run

StackName = Literal["legacy", "graph"]

Repeating = Literal["frames", "text"]
"""How a stack says again what another has said: in the same frames, or in the same text."""


@dataclass(frozen=True, slots=True)
class Powers:
    """What can be done with a stack beyond serving.

    `taped`: its effects are on the exchange's tape, where others can play them; in the shadow it
    plays those of others. `shadows`: it may run beside the one that serves without doing anything.
    `takes_over`: it can finish a stream that another one began; one behind an address is given the
    answers of the model which the other was given through the gateway.
    """

    taped: bool
    shadows: bool
    takes_over: bool

    def shadows_beside(self, served: Powers) -> bool:
        """Whether it can run in the shadow of another: one that plays a tape needs that tape."""
        return self.shadows and (served.taped or not self.taped)

    def repeats(self, failed: Powers) -> Repeating | None:
        """How it says again what another has begun; None where it cannot.

        Both play one tape or both ask through the gateway: calls of one kind are none of the other.
        """
        if not self.takes_over or self.taped != failed.taped:
            return None
        return "frames" if self.taped else "text"


IN_PROCESS = Powers(taped=True, shadows=True, takes_over=True)
"""Of a stack whose flows are called here."""


class Stack(Protocol):
    """An implementation of flows, in this process or behind an address."""

    @property
    def name(self) -> StackName:
        """Which of the two it is."""
        ...

    @property
    def fingerprint(self) -> str:
        """What tells its code apart from yesterday's."""
        ...

    @property
    def powers(self) -> Powers:
        """What can be done with it beyond serving."""
        ...

    def serves(self, flow: FlowSpec) -> bool:
        """Whether it has a flow."""
        ...

    def drive(
        self, order: Order, run: TapeSession, stamp: Callable[[], int], *, strict: bool = True
    ) -> Run:
        """Make a drive for one request; strict, it is ended where it breaks its flow's grammar."""
        ...
