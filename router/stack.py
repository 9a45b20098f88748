"""The router's vocabulary: stacks and what they can do, requests, and how runs end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from contract.errors import Refused
from contract.records import ErrorRecord, Outcome

StackName = Literal["legacy", "graph"]
STACKS: Final[Mapping[str, StackName]] = {"legacy": "legacy", "graph": "graph"}
"""The stacks by name: looks up a text that should be one."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Headers of an HTTP message, names in lower case."""

Blame = Literal["none", "stack", "world"]
"""What an outcome counts against: only a failure of the stack is worth a fallback."""

Repetition = Literal["frames", "text"]
"""How a stack repeats what another one has sent: in the same frames, or in the same text."""


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run ended; `refusal` is what the flow refused the request with."""

    kind: Outcome
    blame: Blame = "none"
    error: ErrorRecord | None = None
    refusal: Refused | None = None

    @property
    def code(self) -> str:
        """The code of its error; empty where there is none."""
        return self.error.code if self.error is not None else ""


FIELDS: Final = "fields"
"""The attribute of a log record with the facts beside its event."""

EXCHANGE_HEADER: Final = b"x-cutover-exchange"
"""Names the exchange, in requests to stacks and in responses to clients."""
ROLE_HEADER: Final = b"x-cutover-role"
"""Names the role of the run, in requests to stacks."""


def header_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """Return the first value of a header; empty where there is none."""
    for key, value in headers:
        if key == name:
            return value
    return b""


class IncomingRequest(msgspec.Struct, frozen=True):
    """A request as it came over HTTP, for stacks that are called over HTTP themselves.

    `peer` is the address it came from; `proxies` are the addresses whose forwarding headers count.
    """

    body: bytes
    headers: Headers = ()
    query: bytes = b""
    peer: str = ""
    scheme: str = "http"
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Powers:
    """What can be done with a stack beyond serving.

    `taped`: its effects are on the exchange's tape, where others can play them; in the shadow it
    plays those of others. `shadows`: it may run beside the serving stack without side effects.
    `takes_over`: it can finish a stream that another stack began; a remote stack receives the
    model's answers that the other one received through the gateway. `exact`: where it plays a tape,
    its frames are always the same.
    """

    taped: bool
    shadows: bool
    takes_over: bool
    exact: bool = True

    def shadows_beside(self, served: Powers) -> bool:
        """Whether it can shadow another stack: one that plays a tape needs that tape."""
        return self.shadows and (served.taped or not self.taped)

    def repeats(self, failed: Powers) -> Repetition | None:
        """How it repeats what another stack has sent; None where it cannot.

        Both play one tape or both use the gateway: calls of one kind are unknown to the other.
        """
        if not self.takes_over or self.taped != failed.taped:
            return None
        return "frames" if self.taped and self.exact and failed.exact else "text"


IN_PROCESS = Powers(taped=True, shadows=True, takes_over=True)
"""The powers of a stack whose flows run in this process."""
