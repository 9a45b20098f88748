"""The last exchanges: an observer that remembers so many, and nothing anybody said in them."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from router.admin.pages import ExchangePage

if TYPE_CHECKING:
    from router.context import ExchangeContext, LedgerLine

KEPT = 1_000


class Recent:
    """Remembers how the last exchanges went."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._pages: OrderedDict[str, ExchangePage] = OrderedDict()

    def last(self, count: int) -> list[ExchangePage]:
        """Give the last ones, the latest first."""
        return list(islice(reversed(self._pages.values()), count))

    def refused(self, flow: str, status: int, code: str) -> None:
        """A request that never became an exchange leaves no trace here."""

    def finished(self, context: ExchangeContext) -> None:
        """Remember an exchange; the oldest makes room."""
        self._pages[context.exchange] = _page(context)
        if len(self._pages) > self._kept:
            self._pages.popitem(last=False)

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Note where its shadow ended."""
        page = self._pages.get(context.exchange)
        if page is not None:
            shadow = f"{line.state}({line.reason})" if line.reason else line.state
            self._pages[context.exchange] = msgspec.structs.replace(page, shadow=shadow)


def _page(context: ExchangeContext) -> ExchangePage:
    outcome = context.outcome
    return ExchangePage(
        id=context.exchange,
        flow=context.spec.name,
        assigned=context.assignment.stack,
        served=context.served,
        reason=context.reason,
        outcome=outcome.kind if outcome else "cancelled",
        error=outcome.error.code if outcome and outcome.error else None,
        began=context.began,
        first_frame=context.first_frame,
        ended=context.ended,
        lost=context.lost_us,
    )
