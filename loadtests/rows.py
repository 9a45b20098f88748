"""Raw rows, one JSON line a request, and how busy generator and machine were meanwhile.

Every figure comes from the rows. Clocks are `time.monotonic_ns()`; durations are nanoseconds since
`sent`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from contract.errors import CutoverError
from contract.wire import NO_JSON

Ending = Literal[
    "complete",  # the terminal frame came and the response ended as HTTP says it must
    "error",  # the stream reported a failure
    "truncated",  # it ended without its terminal frame, or was cut
    "refused",  # an answer, but not 200
    "unreachable",  # no answer at all
    "timeout",  # the client's patience ended
    "left",  # its client left, as it was planned to
    "cancelled",  # the generator stopped: excluded
]
FAILURES: tuple[Ending, ...] = ("error", "truncated", "refused", "unreachable", "timeout")

SECOND = 1_000_000_000
"""Nanoseconds."""
STALL_SECONDS = 2.0
"""Silence that counts as a stall."""
ROWS_FLUSHED_EVERY = 50


BUSIEST = 0.8
"""Above this share of one CPU the generator's stamps are late and its run is void."""
MOST_BUSY_MACHINE = 0.97
_STAT = Path("/proc/stat")


class LoadRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One streamed request.

    `scheduled` and `sent` are moments; `headers`, `first_event` (any event), `first_token` (answer
    or reasoning), `first_text` (answer), `last_content`, `terminal` and `ended` are nanoseconds
    after `sent`, None when never reached. A content event is one by which answer or reasoning
    grew; `gaps` are the microseconds between them. `stalls` counts silences over the limit after
    the first content event. `leaves` is when the client was to leave, None for one that stays to
    the end. `labels` are the response's `x-cutover-*` headers.
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
    leaves: int | None = None
    labels: dict[str, str] = {}

    @property
    def lag(self) -> int:
        """Schedule lag, nanoseconds: how late the generator sent."""
        return self.sent - self.scheduled

    @property
    def measured(self) -> bool:
        """Whether latencies and goodput count it: nothing but its stack decided how long it took.

        Of clients that were to leave none does, not even one whose answer was whole before: those
        are the quick ones.
        """
        return self.ending != "cancelled" and self.leaves is None


class RowsUnreadable(CutoverError):
    """A rows file holds a line that is no row."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"line {line} of {str(path)!r} is not a row of a load run")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LoadRow)


class RowWriter:
    """Appends rows to a file; open in a `with` block, so that the last ones are written too."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._waiting = 0

    def write(self, row: LoadRow) -> None:
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


def read_rows(path: Path, *, torn: bool = False) -> Iterator[LoadRow]:
    """Yield the rows of a file; raises `RowsUnreadable`.

    With `torn`, its writer may have been ended in the middle of the last line: that is left out.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if torn and not line.endswith(b"\n"):
                return
            try:
                yield _decoder.decode(line)
            except NO_JSON as error:
                raise RowsUnreadable(path, number) from error


class GeneratorLoad(msgspec.Struct, frozen=True):
    """What one generator process used; seconds.

    `began` is the moment from which its schedule counts, monotonic nanoseconds of its machine.
    """

    cpu: float
    wall: float
    began: int = 0

    @property
    def share(self) -> float:
        """Share of one CPU."""
        return self.cpu / self.wall if self.wall > 0 else 0.0


class GeneratorMeter:
    """Starts measuring when it is made; `began` as in `GeneratorLoad`, by default then."""

    def __init__(self, began: int | None = None) -> None:
        # What was imported lives for ever: the collector need not walk it in the middle of a run.
        gc.collect()
        gc.freeze()
        self._cpu = time.process_time()
        self._wall = time.monotonic()
        self._began = time.monotonic_ns() if began is None else began

    def load(self) -> GeneratorLoad:
        """Return what was used until now."""
        cpu, wall = time.process_time() - self._cpu, time.monotonic() - self._wall
        return GeneratorLoad(cpu, wall, self._began)


def write_load(load: GeneratorLoad, folder: Path, name: str) -> None:
    """Write the load beside the rows, whole or not at all: its writer may be killed meanwhile."""
    beside = folder / f".generator-{name}"
    beside.write_bytes(msgspec.json.encode(load))
    beside.replace(folder / f"generator-{name}.json")


def read_loads(folder: Path) -> list[GeneratorLoad]:
    """Read the load of all generators that wrote into a folder."""
    paths = sorted(folder.glob("generator-*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=GeneratorLoad) for path in paths]


def write_busy(share: float | None, folder: Path, name: str) -> None:
    """Write how busy another machine was, beside the rows of its generators."""
    (folder / f"machine-{name}.json").write_bytes(msgspec.json.encode(share))


def read_busy(folder: Path) -> list[float]:
    """Read how busy the machines were whose generators wrote into a folder, this one aside."""
    shares = (msgspec.json.decode(path.read_bytes()) for path in folder.glob("machine-*.json"))
    return [share for share in shares if share is not None]


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks of all CPUs since the machine started."""

    busy: int
    total: int

    def share_since(self, earlier: CpuTimes) -> float | None:
        """Share of all CPUs that was busy in between; None when no tick has passed."""
        total = self.total - earlier.total
        return (self.busy - earlier.busy) / total if total > 0 else None


def cpu_times() -> CpuTimes:
    """Read the CPU times of the machine; zeros where there are none (not Linux)."""
    try:
        first = _STAT.read_text("ascii").partition("\n")[0]
    except OSError:
        return CpuTimes(0, 0)
    return parse_times(first)


def parse_times(line: str) -> CpuTimes:
    """Read `cpu user nice system idle iowait irq softirq steal …` (proc(5)).

    Guests are counted in `user` already; stolen time was not ours, so it counts as busy.
    """
    ticks = [int(word) for word in line.split()[1:9]]
    idle = sum(ticks[3:5])
    return CpuTimes(sum(ticks) - idle, sum(ticks))
