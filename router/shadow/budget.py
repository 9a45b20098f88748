"""What shadows may spend in a day, and what they have spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import operations as ops
from effects.stores import NO_SPENDING, Spending
from router.capture.records import answered_by, asked_of
from router.gateway.correlation import SITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from effects.tape import Entry
    from router.capture.records import Price
    from router.config import ShadowSettings
    from router.serving.run import Run
    from router.serving.stream import Serving

_DAY = 86_400


class ShadowBudget:
    """Tokens and money of the day, in UTC; a router counts its own, since its start.

    What others have spent is as they were last heard: `told` and `heard` are how.

    A shadow that plays the tape spends nothing: what it asked the model itself counts. Where its
    calls cannot be seen, because its stack neither is on the tape nor asks through the gateway, it
    is taken to have asked for as much as the tape holds.
    """

    def __init__(
        self, limits: Callable[[], ShadowSettings], price: Price, wall: Callable[[], float]
    ) -> None:
        self.tokens = 0
        self.cost = 0.0
        self._limits = limits
        self._price = price
        self._wall = wall
        self._day = 0
        self._others = NO_SPENDING

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        limits = self._limits()
        return bool(limits.tokens_per_day or limits.cost_per_day)

    @property
    def exhausted(self) -> bool:
        """Whether no shadow may begin before tomorrow."""
        if not self.limited:
            return False
        self._turn()
        limits = self._limits()
        tokens, cost = self.tokens + self._others.tokens, self.cost + self._others.cost
        return 0 < limits.tokens_per_day <= tokens or 0 < limits.cost_per_day <= cost

    def told(self) -> tuple[int, Spending]:
        """Give the day, from the Unix epoch, and what this router has spent in it."""
        self._turn()
        return self._day, Spending(self.tokens, self.cost)

    def heard(self, day: int, own: Spending, spent: Spending) -> None:
        """Take what all have spent in a day, of which `own` was what this router had told."""
        self._turn()
        if day == self._day:
            self._others = Spending(spent.tokens - own.tokens, spent.cost - own.cost)

    def charge(self, serving: Serving, drive: Run) -> None:
        """Count what a shadow has spent, whether or not it came to its end."""
        self._turn()
        for entry in _asked(serving, drive):
            asked, use = asked_of(entry)
            if (usage := use.usage) is not None:
                self.tokens += usage.prompt_tokens + usage.completion_tokens
                self.cost += self._price(answered_by(asked, use), usage) or 0.0

    def _turn(self) -> None:
        day = int(self._wall() // _DAY)
        if day != self._day:
            self._day, self.tokens, self.cost, self._others = day, 0, 0.0, NO_SPENDING


def _asked(serving: Serving, drive: Run) -> Iterator[Entry]:
    """Give the model calls a shadow has to pay for."""
    plays = [play for play in drive.run.plays if play.operation is ops.MODEL_STREAM]
    passed = any(play.site == SITE for play in plays)
    if passed or drive.order.stack.powers.taped:
        for play in plays:
            if play.how == "live" and play.entry:
                yield play.entry
    else:
        for entry in serving.exchange.tape.entries:
            if entry.operation is ops.MODEL_STREAM:
                yield entry
