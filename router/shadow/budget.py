"""What shadows may spend in a day, in requests and on model calls, and what they have spent."""

from __future__ import annotations

from collections.abc import Callable

from contract import operations as ops
from contract.model import GATEWAY_SITE
from effects.stores import NO_SPENDING, Spending
from effects.tape import Tape
from router.config.schema import ShadowSettings
from router.context import Price, charge_of
from router.serving.run import Run

_DAY_SECONDS = 86_400


class ShadowBudget:
    """Requests, tokens and money of the day, in UTC; a router counts its own, since its start.

    What other routers have spent is as it was last read from the shared state. A request is a
    shadow that a service runs, or that calls the model itself; it counts when it begins. Tokens and
    money count when a shadow has ended: one that plays the tape spends nothing; its own model calls
    count. Where they cannot be seen, because its stack neither is on the tape nor has used the
    gateway, it is charged as much as the tape holds.
    """

    def __init__(
        self, settings: Callable[[], ShadowSettings], price: Price, wall: Callable[[], float]
    ) -> None:
        self.requests = 0
        self.tokens = 0
        self.cost = 0.0
        self._settings = settings
        self._price = price
        self._wall = wall
        self._day = 0
        self._other_days: dict[int, Spending] = {}
        self._others = NO_SPENDING

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        settings = self._settings()
        return bool(settings.requests_per_day or settings.tokens_per_day or settings.cost_per_day)

    @property
    def exhausted(self) -> bool:
        """Whether no shadow may begin before tomorrow."""
        if not self.limited:
            return False
        self._begin_day()
        settings, others = self._settings(), self._others
        return (
            0 < settings.requests_per_day <= self.requests + others.requests
            or 0 < settings.tokens_per_day <= self.tokens + others.tokens
            or 0 < settings.cost_per_day <= self.cost + others.cost
        )

    def spent(self) -> tuple[int, Spending]:
        """Return the day, from the Unix epoch, and what this router has spent in it."""
        self._begin_day()
        return self._day, Spending(self.tokens, self.cost, self.requests)

    def share(self, day: int, own: Spending, total: Spending) -> None:
        """Take what all routers have spent in a day; `own` is this router's part of it."""
        self._begin_day()
        if day == self._day:
            self._others = Spending(
                total.tokens - own.tokens, total.cost - own.cost, total.requests - own.requests
            )

    def count_request(self) -> None:
        """Count a shadow that begins at a service, or that calls the model itself."""
        self._begin_day()
        self.requests += 1

    def charge(self, tape: Tape, run: Run, *, taped: bool) -> None:
        """Count what a shadow has spent, completed or not; `taped` is whether its stack is."""
        self._begin_day()
        plays = [play for play in run.session.plays if play.operation is ops.MODEL_STREAM]
        if taped or any(play.site == GATEWAY_SITE for play in plays):
            paid = [play.entry for play in plays if play.how == "live" and play.entry]
        else:
            paid = [entry for entry in tape.entries if entry.operation is ops.MODEL_STREAM]
        for entry in paid:
            charge = charge_of(entry, "live", self._price)
            if (usage := charge.use.usage) is not None:
                self.tokens += usage.prompt_tokens + usage.completion_tokens
                self.cost += charge.cost or 0.0

    def _begin_day(self) -> None:
        """Begin the day of the clock, or go on with it where the clock was set back."""
        day = int(self._wall() // _DAY_SECONDS)
        if day != self._day:
            self._other_days[self._day] = Spending(self.tokens, self.cost, self.requests)
            own = self._other_days.pop(day, NO_SPENDING)
            self._day, self._others = day, NO_SPENDING
            self.requests, self.tokens, self.cost = own.requests, own.tokens, own.cost
