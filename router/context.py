"""A request in the router's hands, and what the router has done with all of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.flow import FlowSpec
    from contract.records import RunRecord
    from effects.tape import PausingHuman
    from router.capture.records import Account
    from router.resume.pauses import Resumed
    from router.routing.admission import Admitted
    from router.serving.stream import Serving
    from router.shadow.ledger import Line
    from router.shadow.scheduler import Job


@dataclass(slots=True)
class ExchangeContext:
    """One request in the router's hands, from its arrival until its records are written.

    `ended` is when nothing more was sent, in microseconds since the exchange began. `accounts` are
    those of the `runs`. `human` may be asked by flows that pause; `resumed` is the pause it goes on
    from. `unshadowed` says why there is no job though there should be one.
    """

    exchange: str
    spec: FlowSpec
    serving: Serving
    admitted: Admitted
    config: str
    began: int
    job: Job | None = None
    ended: int = 0
    unshadowed: str = ""
    human: PausingHuman | None = None
    resumed: Resumed | None = None
    runs: list[RunRecord] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)

    @property
    def last_served(self) -> RunRecord | None:
        """The record of the run whose end the client saw; None where none was written."""
        served = [run for run in self.runs if run.role != "shadow"]
        return served[-1] if served else None


@dataclass(slots=True)
class Counts:
    """What the router has done since it started."""

    requests: int = 0
    fallbacks: int = 0
    takeovers: int = 0
    spared: int = 0
    qa_ignored: int = 0
    client_left: int = 0
    client_unread: int = 0


log = logging.getLogger(__name__)


class Observer(Protocol):
    """Is told of requests; it never waits, and what it raises is logged and goes no further."""

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """A request was refused before it became an exchange."""
        ...

    def concluded(self, ticket: ExchangeContext) -> None:
        """An exchange has ended and its served runs are written down; its shadow may be due."""
        ...

    def settled(self, ticket: ExchangeContext, line: Line) -> None:
        """The ledger knows where the exchange's shadow ended: nothing will follow."""
        ...


class Observers:
    """Tells all observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """Tell of a request that never became an exchange."""
        self._tell("turned_away", flow, status, code)

    def concluded(self, ticket: ExchangeContext) -> None:
        """Tell of an exchange that has ended."""
        self._tell("concluded", ticket)

    def settled(self, ticket: ExchangeContext, line: Line) -> None:
        """Tell of an exchange that is settled."""
        self._tell("settled", ticket, line)

    def _tell(self, what: str, *about: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, what)(*about)
            except Exception:
                # Whoever watches must not cost an exchange its record, or the ledger its balance.
                log.exception("an observer failed when something was %s", what)
