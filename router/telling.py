"""How an exchange ended, for those who judge a stack by it and for those who read the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.driving import Ending
    from router.ticket import Ticket

log = logging.getLogger(__name__)


def first_ending(ticket: Ticket) -> Ending | None:
    """Give the end of the stack that was tried first, None where it has none."""
    drives = ticket.serving.drives
    return drives[0].ending if drives else None


def tell(ticket: Ticket) -> None:
    """Log what the world outside failed a flow with; a stack's own failures are logged by it."""
    drive = ticket.serving.drives[-1] if ticket.serving.drives else None
    if drive is None or drive.ending is None or drive.ending.blame != "world":
        return
    fault, error = drive.run.fault, drive.ending.error
    log.warning(
        "%s exchange %s failed: %s %s",
        ticket.spec.name,
        ticket.exchange,
        error.code if error else drive.ending.outcome,
        dict(fault.data) if fault else "",
    )
