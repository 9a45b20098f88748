"""Two runs of one exchange, what differs between them, and how a cause is named."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

import msgspec

from cutover.records import RunRecord, TapeRecord

Kind = Literal[
    "outcome",
    "refusal",
    "grammar",
    "event_missing",
    "event_added",
    "event_changed",
    "event_moved",
    "text",
    "reasoning",
    "held_back",
    "annotation",
    "call_missing",
    "call_added",
    "call_changed",
    "writes_moved",
]
"""Read legacy → graph: what is `missing` graph lacks, what is `added` it has alone.

`held_back` is text that one stack sends much later than it could; `annotation` is what stands
beside texts, and slight; `refusal` another refusal than legacy's.
"""

Because = Literal["", "earlier_end", "changed_request", "missing_call"]
"""Which sentence explains a difference by an earlier one; "" for a cause."""

SLIGHT: Final[frozenset[Kind]] = frozenset({"annotation"})
"""Kinds that are shown, and make no pair different."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one exchange; `served` is the one that served last, with the client's end.

    Differences are read from `legacy` to `graph`, whichever of them served. Of two runs of one
    stack (A/A), the one that served stands for legacy.
    """

    served: RunRecord
    played: RunRecord
    tape: TapeRecord

    @property
    def legacy(self) -> RunRecord:
        """The control's run."""
        return self.played if self.served.stack == "graph" != self.played.stack else self.served

    @property
    def graph(self) -> RunRecord:
        """The candidate's run."""
        return self.served if self.legacy is self.played else self.played


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place where graph is not as legacy.

    `name` is that of the event, the effect or the text's channel, `path` the place in it, without
    indices (`messages[].content`), "" for all of it. `legacy` and `graph` are what stands there, as
    JSON text, None for nothing. `at` is when, in microseconds of tape time. `shape` is that of what
    was added or is missing: its keys and types, so that another event is another cause; else what
    cannot be seen of the values, such as "NFC/NFD".
    """

    kind: Kind
    name: str
    path: str = ""
    legacy: str | None = None
    graph: str | None = None
    at: int = 0
    shape: str = ""
    because: Because = ""

    def cause(self, flow: str) -> str:
        """Return the id of the cause that this is an instance of: eight hexadecimal digits."""
        parts = (flow, self.kind, self.name, self.path, self.shape)
        return blake2b("\x1f".join(parts).encode(), digest_size=4).hexdigest()
