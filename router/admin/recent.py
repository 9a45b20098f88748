"""The last exchanges: an observer that remembers so many, and nothing anybody said in them."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from router.admin.pages import ExchangePage
from router.telemetry.timing import first_frame

if TYPE_CHECKING:
    from router.context import ExchangeContext
    from router.shadow.ledger import Line

KEPT = 1_000


class Recent:
    """Remembers how the last exchanges went."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._pages: OrderedDict[str, ExchangePage] = OrderedDict()

    def last(self, count: int) -> list[ExchangePage]:
        """Give the last ones, the latest first."""
        return list(islice(reversed(self._pages.values()), count))

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """A request that never became an exchange leaves no trace here."""

    def concluded(self, ticket: ExchangeContext) -> None:
        """Remember an exchange; the oldest makes room."""
        self._pages[ticket.exchange] = _page(ticket)
        if len(self._pages) > self._kept:
            self._pages.popitem(last=False)

    def settled(self, ticket: ExchangeContext, line: Line) -> None:
        """Note where its shadow ended."""
        page = self._pages.get(ticket.exchange)
        if page is not None:
            shadow = f"{line.state}({line.reason})" if line.reason else line.state
            self._pages[ticket.exchange] = msgspec.structs.replace(page, shadow=shadow)


def _page(ticket: ExchangeContext) -> ExchangePage:
    serving = ticket.serving
    ending = serving.drive.ending if serving.drives else None
    return ExchangePage(
        id=ticket.exchange,
        flow=ticket.spec.name,
        assigned=serving.plan.assigned.name,
        served=serving.served.name,
        reason=serving.reason or serving.plan.assignment.why,
        outcome=ending.outcome if ending else "cancelled",
        error=ending.error.code if ending and ending.error else None,
        began=ticket.began,
        first_frame=first_frame(serving),
        ended=ticket.ended,
        lost=serving.lost_us,
    )
