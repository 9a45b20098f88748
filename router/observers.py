"""Observers: who is told of requests, once nothing depends on the telling any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.ledger import Line
    from router.ticket import Ticket

log = logging.getLogger(__name__)


class Observer(Protocol):
    """Is told of requests; it never waits, and what it raises is logged and goes no further."""

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """A request was refused before it became an exchange."""
        ...

    def concluded(self, ticket: Ticket) -> None:
        """An exchange has ended and its served runs are written down; its shadow may be due."""
        ...

    def settled(self, ticket: Ticket, line: Line) -> None:
        """The ledger knows where the exchange's shadow ended: nothing will follow."""
        ...


class Observers:
    """Tells all observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """Tell of a request that never became an exchange."""
        self._tell("turned_away", flow, status, code)

    def concluded(self, ticket: Ticket) -> None:
        """Tell of an exchange that has ended."""
        self._tell("concluded", ticket)

    def settled(self, ticket: Ticket, line: Line) -> None:
        """Tell of an exchange that is settled."""
        self._tell("settled", ticket, line)

    def _tell(self, what: str, *about: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, what)(*about)
            except Exception:
                # Whoever watches must not cost an exchange its record, or the ledger its balance.
                log.exception("an observer failed when something was %s", what)
