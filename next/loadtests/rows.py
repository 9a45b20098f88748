"""Raw rows: a line of JSON for each request, and one for each process that sent them."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from cutover.errors import CutoverError

Ending = Literal[
    "complete",  # its terminal event came
    "failed",  # the stream says that it failed
    "truncated",  # it ended without its terminal event, or broke off
    "refused",  # a status other than 200
    "unreachable",  # no answer
    "timeout",  # not over within the patience of the client
    "stopped",  # the generator ended first; counts nowhere
]

BUSY: Final = 0.8
"""The share of a CPU above which a generator's stamps are late."""


class RowsDamaged(CutoverError):
    """A file of rows has a line that is none."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}: line {line} is no row of a load test: {reason}")


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="request"):
    """A request. All times are in milliseconds from the moment when it was due.

    `due` is that moment, in seconds since its process began to load. `sent_ms` is how late the
    generator was, `ttft_ms` when the first text came (answer or reasoning), `gap_ms` the longest
    silence between two texts, `ended_ms` when the terminal event came, or else the end. `assigned`
    and `served` are the stacks that a router names, `exchange` is its id.
    """

    flow: str
    stack: str = ""
    run: int = 0
    due: float
    sent_ms: float
    ttft_ms: float | None = None
    gap_ms: float = 0.0
    ended_ms: float
    ending: Ending
    code: str = ""
    pieces: int = 0
    received: int = 0
    assigned: str = ""
    served: str = ""
    exchange: str = ""


class Generator(msgspec.Struct, frozen=True, kw_only=True, tag="generator"):
    """A process that sent requests: its share of a CPU over the `seconds` in which it did."""

    run: int
    cpu: float
    seconds: float


class RowWriter:
    """Appends what one process measures to a file of its own; opens a `run`, and closes it."""

    def __init__(self, folder: Path, run: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{run:03}-{socket.gethostname()}-{os.getpid()}.jsonl"
        self._file = (folder / name).open("ab")
        self._run = run
        self._cpu, self._began = time.process_time(), time.monotonic()

    def write(self, row: Row | Generator) -> None:
        """Append a line; it is on disk when this returns, so that a killed process loses none."""
        self._file.write(msgspec.json.encode(row) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Append what the process used, and close the file."""
        seconds = time.monotonic() - self._began
        cpu = (time.process_time() - self._cpu) / max(seconds, 1e-9)
        self.write(Generator(run=self._run, cpu=cpu, seconds=seconds))
        self._file.close()


def read_rows(folder: Path) -> Iterator[Row | Generator]:
    """Yield the lines of all files in a folder; raises `RowsDamaged`."""
    decoder = msgspec.json.Decoder(Row | Generator)
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise RowsDamaged(path, number, str(error)) from error


def summary(rows: Iterable[Row]) -> list[str]:
    """Return a line for each flow: endings, and exact percentiles of what was complete."""
    flows: dict[str, list[Row]] = {}
    for row in rows:
        flows.setdefault(row.flow, []).append(row)
    lines = []
    for flow, own in sorted(flows.items()):
        endings = [row.ending for row in own]
        counts = ", ".join(f"{endings.count(one)} {one}" for one in dict.fromkeys(sorted(endings)))
        complete = [row for row in own if row.ending == "complete"]
        first = _percentiles([row.ttft_ms for row in complete if row.ttft_ms is not None])
        whole = _percentiles([row.ended_ms for row in complete])
        longest = max((row.gap_ms for row in complete), default=0.0)
        lines.append(
            f"{flow}: {counts}; P50/P95/P99 of TTFT {first}, of E2E {whole} ms; "
            f"longest gap {longest:.0f} ms"
        )
    return lines


def _percentiles(values: Sequence[float]) -> str:
    """Return P50, P95 (of 20 and more) and P99 (of 100), by linear interpolation."""
    if not values:
        return "-"
    cuts = statistics.quantiles([*values] * (1 + (len(values) == 1)), n=100, method="inclusive")
    least = ((50, 1), (95, 20), (99, 100))
    return "/".join(
        f"{cuts[percent - 1]:.0f}" if len(values) >= enough else "-" for percent, enough in least
    )
