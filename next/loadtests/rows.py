"""Raw rows: a line of JSON for each request, and one for each process that sent them."""

from __future__ import annotations

import os
import socket
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

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


def open_rows(folder: Path, run: int) -> BinaryIO:
    """Open the file of this process; each line is on disk once it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{run:03}-{socket.gethostname()}-{os.getpid()}.jsonl"
    return (folder / name).open("ab", buffering=0)


def read_rows(folder: Path) -> Iterator[Row | Generator]:
    """Yield the lines of all files in a folder; raises `RowsDamaged`."""
    decoder = msgspec.json.Decoder(Row | Generator)
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise RowsDamaged(path, number, str(error)) from error


def summary(flow: str, rows: Sequence[Row]) -> str:
    """Return how the requests of a flow ended, and exact percentiles of the complete ones."""
    endings = [row.ending for row in rows if row.flow == flow]
    whole = [row for row in rows if row.flow == flow and row.ending == "complete"]
    counts = ", ".join(f"{endings.count(one)} {one}" for one in sorted({*endings}))
    first = _percentiles([row.ttft_ms for row in whole if row.ttft_ms is not None])
    longest = max((row.gap_ms for row in whole), default=0.0)
    return (
        f"{flow}: {counts or 'nothing was due'}; P50/P95/P99 of TTFT {first}, "
        f"of E2E {_percentiles([row.ended_ms for row in whole])} ms; longest gap {longest:.0f} ms"
    )


def _percentiles(values: Sequence[float]) -> str:
    """Return P50, P95 (of 20 and more) and P99 (of 100), by linear interpolation."""
    if not values:
        return "-"
    cuts = statistics.quantiles([*values] * (1 + (len(values) == 1)), n=100, method="inclusive")
    enough = {50: 1, 95: 20, 99: 100}
    return "/".join(f"{cuts[p - 1]:.0f}" if len(values) >= n else "-" for p, n in enough.items())
