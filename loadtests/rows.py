"""Raw rows: what one request of a load run was, one JSON line each. Every figure comes from these.

Clocks are `time.monotonic_ns()`; durations are nanoseconds since `sent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from contract.errors import CutoverError

Ending = Literal[
    "complete",  # the terminal frame came and the response ended as HTTP says it must
    "error",  # the stream said itself that it failed
    "truncated",  # it ended without its terminal frame, or was cut
    "refused",  # an answer, but not 200
    "unreachable",  # no answer at all
    "timeout",  # the client's patience ended
    "cancelled",  # the generator left: nobody's fault, and excluded
]
FAILURES: tuple[Ending, ...] = ("error", "truncated", "refused", "unreachable", "timeout")

ROWS_FLUSHED_EVERY = 50
ILLEGIBLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON raises of bytes that are none, no text, or nested deeper than can be read."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One streamed request.

    `scheduled` and `sent` are moments; `headers`, `first_event` (any event), `first_token` (answer
    or reasoning), `first_text` (answer), `last_content`, `terminal` and `ended` are nanoseconds
    after `sent`, None when never reached. A content event is one by which answer or reasoning
    grew; `gaps` are the microseconds between them. `stalls` counts silences over the limit after
    the first content event. `labels` are the response's `x-cutover-*` headers.
    """

    run: int
    stack: str
    flow: str
    message_id: str
    scheduled: int
    sent: int
    status: int = 0
    headers: int | None = None
    first_event: int | None = None
    first_token: int | None = None
    first_text: int | None = None
    last_content: int | None = None
    terminal: int | None = None
    ended: int
    ending: Ending
    code: str = ""
    events: int = 0
    contents: int = 0
    comments: int = 0
    gaps: tuple[int, ...] = ()
    stalls: int = 0
    labels: dict[str, str] = {}

    @property
    def lag(self) -> int:
        """Schedule lag, nanoseconds: how late the generator sent."""
        return self.sent - self.scheduled


class RowsUnreadable(CutoverError):
    """A rows file holds a line that is no row."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"line {line} of {str(path)!r} is not a row of a load run")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


class RowWriter:
    """Appends rows to a file; open in a `with` block, so that the last ones are written too."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._waiting = 0

    def write(self, row: Row) -> None:
        """Append one row; it is on disk after at most fifty more."""
        self._file.write(_encoder.encode(row) + b"\n")
        self._waiting += 1
        if self._waiting >= ROWS_FLUSHED_EVERY:
            self.flush()

    def flush(self) -> None:
        """Put what was written on disk."""
        self._waiting = 0
        self._file.flush()

    def close(self) -> None:
        """Write the rest and close; a second time is fine."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read_rows(path: Path, *, torn: bool = False) -> Iterator[Row]:
    """Yield the rows of a file; raises `RowsUnreadable`.

    With `torn`, its writer may have been ended in the middle of the last line: that is left out.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if torn and not line.endswith(b"\n"):
                return
            try:
                yield _decoder.decode(line)
            except ILLEGIBLE as error:
                raise RowsUnreadable(path, number) from error
