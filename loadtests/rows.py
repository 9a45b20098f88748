"""Raw rows: a line of JSON for each request, and one for each process that sent them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

Ending = Literal["complete", "failed", "truncated", "refused", "unreachable", "timeout", "stopped"]
"""By its terminal event; by the stream's own word; without that event; by a status other than 200;
without an answer; after the client's patience; by the generator, which counts nowhere."""


class Row(msgspec.Struct, kw_only=True, omit_defaults=True, tag="request"):
    """A request. All times are in milliseconds from the moment when it was due.

    `due` is that moment, in seconds since its process began to load. `sent_ms` is how late the
    generator was, `ttft_ms` when the first text came (answer or reasoning), `gap_ms` the longest
    silence between two texts, `ended_ms` when the terminal event came, or else the end. `assigned`
    and `served` are the stacks that a router names, `exchange` is its id. `turn` is the place in a
    `conversation` of several. `tokens` is the usage that the stream tells, `tokens_s` and
    `pieces_s` are what came a second, from its first text to its last.
    """

    flow: str
    stack: str = ""
    run: int = 0
    turn: int = 1
    conversation: str = ""
    due: float
    sent_ms: float = 0.0
    ttft_ms: float | None = None
    gap_ms: float = 0.0
    ended_ms: float | None = None
    ending: Ending = "unreachable"
    code: str = ""
    pieces: int = 0
    tokens: int | None = None
    tokens_s: float | None = None
    pieces_s: float | None = None
    received: int = 0
    assigned: str = ""
    served: str = ""
    exchange: str = ""


class Generator(msgspec.Struct, kw_only=True, tag="generator"):
    """A process that sent requests: its share of a CPU over the `seconds` in which it did."""

    run: int
    cpu: float
    seconds: float


def read_rows(folder: Path) -> list[Row | Generator]:
    """Return the lines of all files in a folder."""
    decoder = msgspec.json.Decoder(Row | Generator)
    found = (decoder.decode_lines(path.read_bytes()) for path in sorted(folder.glob("*.jsonl")))
    return [row for rows in found for row in rows]


def summary(rows: Sequence[Row]) -> str:
    """Return how requests ended, and percentiles of the complete ones: P95 of 20, P99 of 100."""
    counts = Counter(row.ending for row in rows)
    whole = [row for row in rows if row.ending == "complete"]
    figures = []
    for found in ([row.ttft_ms for row in whole], [row.ended_ms for row in whole]):
        values = [one for one in found if one is not None]
        least = ((50, 2), (95, 20), (99, 100))
        known = (f"{np.percentile(values, p):.0f}" if len(values) >= n else "-" for p, n in least)
        figures.append("/".join(known))
    endings = ", ".join(f"{counts[one]} {one}" for one in sorted(counts)) or "none sent"
    return f"{endings}; P50/P95/P99 of TTFT {figures[0]}, of E2E {figures[1]} ms"
