"""Two runs of one exchange, what differs between them, and how a cause is named."""

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
"""What differs, seen from legacy: `missing` stands in legacy alone, `added` in graph alone.

- `outcome`, `refusal`: the runs end differently; both refuse, each in its own way.
- `grammar`: the events of one run are out of the flow's order.
- `held_back`: one stack sends a text much later than it could.
- `annotation`: what stands beside the texts of a service.
- `writes_moved`: the same writes in another order.
"""

Because = Literal["", "earlier_end", "changed_request", "missing_call"]
"""How a difference follows from another one of its pair; "" where it is a cause itself.

`earlier_end`: one run ended before. `changed_request`: a model was asked something else.
`missing_call`: a call that differs brought what differs here, or was not on the tape.
"""

SLIGHT: Final[frozenset[Kind]] = frozenset({"annotation"})
"""Kinds that a report shows, and that do not make a pair different."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of one exchange, and its tape.

    `served` is the run that sent the client the end of its stream, `played` a shadow's or replay's.
    The stack decides which of them is `legacy` and which is `graph`. Where both runs are of one
    stack (A/A), the one that served stands for legacy.
    """

    served: RunRecord
    played: RunRecord
    tape: TapeRecord

    @property
    def legacy(self) -> RunRecord:
        """The control's run."""
        return self.played if self._graph_served else self.served

    @property
    def graph(self) -> RunRecord:
        """The candidate's run."""
        return self.served if self._graph_served else self.played

    @property
    def _graph_served(self) -> bool:
        return self.served.stack == "graph" and self.played.stack != "graph"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place where graph differs from legacy.

    `name` is that of the event, the effect or the text's channel. `path` is the place in its value,
    without indices (`messages[].content`), "" for the whole value. `legacy` and `graph` are what
    each has there, as JSON text, None for nothing. `at` is in microseconds of the exchange. `shape`
    tells apart causes of the same kind and place: keys and types of what is missing or added, or a
    note where the values do not show the reason, such as "NFC/NFD".
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
        """Return the id of this difference's cause, the same in each pair: eight hex digits."""
        parts = (flow, self.kind, self.name, self.path, self.shape)
        return blake2b("\x1f".join(parts).encode(), digest_size=4).hexdigest()
