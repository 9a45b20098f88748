"""The chronicle: the runs of an exchange written down, and who served it, for feedback to come."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from contract.records import VERSION, FeedbackRecord
from router.capture.records import (
    Header,
    account,
    run_record,
)

if TYPE_CHECKING:
    from router.context import ExchangeContext
    from router.parts import Parts
    from router.serving.run import Run

log = logging.getLogger(__name__)

_REMEMBERED = 100_000
"""How many past exchanges feedback can still be joined to in the serving process."""


class ExchangeRecorder:
    """Writes exchanges down for the captures."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._remembered: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def remember(self, ticket: ExchangeContext) -> None:
        """Keep who was assigned and who served."""
        serving = ticket.serving
        self._remembered[ticket.exchange] = (serving.plan.assigned.name, serving.served.name)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def write_served(self, ticket: ExchangeContext) -> bool:
        """Write the served runs down; False, and none, where that fails."""
        try:
            for drive in ticket.serving.drives:
                self.write(ticket, drive)
        except Exception:
            log.exception("the records of %s failed", ticket.exchange)
            ticket.runs, ticket.accounts = [], []
            return False
        return True

    def write(self, ticket: ExchangeContext, drive: Run) -> None:
        """Write one run down."""
        spent = account(drive, self._parts.price)
        ticket.runs.append(run_record(self._header(ticket), ticket.serving, drive, spent))
        ticket.accounts.append(spent)

    def close(self, ticket: ExchangeContext) -> None:
        """Hand what was written to the captures: nothing of the exchange will follow."""
        try:
            if ticket.runs:
                self._parts.captures.put(ticket.runs)
        except Exception:
            # Records serve the migration; they must not cost the books their balance.
            log.exception("the records of %s are lost", ticket.exchange)
        finally:
            ticket.serving.exchange.tape.usage.release()

    def feedback(self, exchange: str, score: Any, comment: str | None) -> None:
        """Keep what a user thought, joined to the assigned stack where it is still known."""
        assigned, served = self._remembered.get(exchange, (None, None))
        self._parts.captures.feedback(
            FeedbackRecord(
                v=VERSION,
                exchange=exchange,
                score=score,
                at=int(self._parts.wall() * 1_000_000),
                comment=comment,
                assigned=assigned,
                served=served,
            )
        )

    def _header(self, ticket: ExchangeContext) -> Header:
        stacks = self._parts.stacks
        return Header(
            exchange=ticket.exchange,
            config=ticket.config,
            began=ticket.began,
            fingerprints={name: stack.fingerprint for name, stack in stacks.items()},
            resumes=ticket.resumed.claim.pause.exchange if ticket.resumed else "",
        )
