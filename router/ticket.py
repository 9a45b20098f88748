"""A request in the router's hands, and what the router has done with all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract.flow import FlowSpec
    from contract.records import RunRecord
    from effects.tape import SuspendingHuman
    from router.admission import Admitted
    from router.continuing import Resumed
    from router.recording import Account
    from router.serving import Serving
    from router.shadow import Job


@dataclass(slots=True)
class Ticket:
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
    human: SuspendingHuman | None = None
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
