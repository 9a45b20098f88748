"""A request in the router's hands, and what the router has done with all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract.flow import FlowSpec
    from contract.records import RunRecord
    from router.admission import Admitted
    from router.recording import Charge
    from router.serving import Serving
    from router.shadow import Job


@dataclass(slots=True)
class Ticket:
    """One request in the router's hands, from its arrival until its records are written.

    `ended` is when nothing more was sent, in microseconds since the exchange began. `charges` are
    the model calls of each of the `runs`.
    `unshadowed` says why there is no job though there should be one.
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
    runs: list[RunRecord] = field(default_factory=list)
    charges: list[tuple[Charge, ...]] = field(default_factory=list)


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
