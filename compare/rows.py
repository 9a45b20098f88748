"""The rows that everything is counted from: one a pair, one an exchange."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import pandas as pd

from compare.differences import Difference

State = Literal["equal", "different", "not_compared"]


class PairRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pair, or an exchange that has none: `why_not` says why it was not compared.

    `at` is when the exchange began, in microseconds since 1970. `left_out` names what of a pair was
    not compared, such as calls where there is no tape: equal is said of the rest alone. `pieces`
    are the numbers of frames of text, legacy's and graph's. `baseline` marks legacy against itself.
    """

    exchange: str
    flow: str
    at: int
    state: State
    why_not: str = ""
    differences: tuple[Difference, ...] = ()
    left_out: tuple[str, ...] = ()
    folded: int = 0
    """Values that were equal but for a date or a generated id."""
    pieces: tuple[int, int] = (0, 0)
    silent: bool = False
    """One service made no call that is on the tape, the other did: its set-up lacks something."""
    baseline: bool = False
    fork: str = ""  # which fork one of the runs is

    @property
    def causes(self) -> Sequence[Difference]:
        """The differences that no other one explains; all, where each is explained."""
        return [one for one in self.differences if not one.because] or self.differences


End = Literal["completed", "failed", "refused", "left", "paused"]


class ExchangeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an exchange was for its client.

    `assigned` is the stack that it was drawn to, `why` says how (only "percent" is a draw).
    `failed_behind` names the stack that failed where another one took over, `code` why, or why the
    exchange failed. Times are in milliseconds since the request was read. `unit` is the value of
    the route key that it was drawn by, such as a user, and `unit_kind` the key's name, "" where the
    request has none: evidence is clustered by it. `score` is the client's feedback: -1, 0, 1.
    """

    exchange: str
    flow: str
    at: int
    assigned: str
    served: str
    why: str
    end: End
    code: str = ""
    failed_behind: str = ""
    first_text_ms: float | None = None
    ended_ms: float | None = None
    unit: str = ""
    unit_kind: str = ""
    score: int | None = None
    config: str = ""
    code_version: str = ""


def frame(rows: Iterable[msgspec.Struct], kind: type[msgspec.Struct] = ExchangeRow) -> pd.DataFrame:
    """Return rows as a frame, with a column for each field."""
    columns = kind.__struct_fields__
    return pd.DataFrame([msgspec.structs.astuple(one) for one in rows], columns=columns)
