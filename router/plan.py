"""The plan of an exchange: who serves it, and who may stand in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.driving import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import FlowSpec, Request
    from contract.records import Role
    from effects.tape import Entry
    from router.driving import Incoming
    from router.rollout import Assignment
    from router.stacks import Repeating, Stack


class Plan(msgspec.Struct, frozen=True):
    """Who serves an exchange, who may stand in, how long a stack may owe a sign of life.

    `unsent_bytes` of frames may wait for the client before the stack waits for it, too. `instead`
    serves from the start in place of the assigned stack, which its breaker spares. `answer` is the
    human's, on the tape of an exchange that goes on after a pause.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    assignment: Assignment
    assigned: Stack
    fallback: Stack | None
    stall_seconds: float
    unsent_bytes: int
    incoming: Incoming | None = None
    exchange: str = ""
    instead: Stack | None = None
    answer: Entry | None = None

    @property
    def first(self) -> Stack:
        """The stack that is tried first."""
        return self.instead or self.assigned

    def order(
        self,
        stack: Stack,
        role: Role,
        *,
        unsent: int | None = None,
        most: Callable[[], int] | None = None,
    ) -> Order:
        """Say what a stack is to be driven for."""
        return Order(
            self.spec, stack, self.request, role, self.incoming, self.exchange, unsent, most
        )

    @property
    def repeating(self) -> Repeating | None:
        """How whoever stands in says again what was sent; None where nobody can."""
        return self.fallback.powers.repeats(self.first.powers) if self.fallback else None
