"""Stacks: the implementations a router can hand a request to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from effects.run import Run
    from router.driving import Drive, Order
    from router.rollout import Stack as StackName


@dataclass(frozen=True, slots=True)
class Powers:
    """What can be done with a stack beyond serving.

    `taped`: its effects are on the exchange's tape, where others can play them; in the shadow it
    plays those of others. `shadows`: it may run beside the one that serves without doing anything.
    `takes_over`: it can finish a stream that another one began.
    """

    taped: bool
    shadows: bool
    takes_over: bool

    def shadows_beside(self, served: Powers) -> bool:
        """Whether it can run in the shadow of another: one that plays a tape needs that tape."""
        return self.shadows and (served.taped or not self.taped)

    def finishes(self, failed: Powers) -> bool:
        """Whether it can finish what another has begun: that must be on the tape."""
        return self.takes_over and failed.taped


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

    def drive(
        self, order: Order, run: Run, stamp: Callable[[], int], *, strict: bool = True
    ) -> Drive:
        """Make a drive for one request; strict, it is ended where it breaks its flow's grammar."""
        ...
