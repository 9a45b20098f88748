"""Are load numbers true? What the clients measured, against what the server did.

The stamped target notes the moment at which it hands each frame to its socket; both processes
read the same monotonic clock, so the true TTFT of a request is the stamp of its first text less
the moment the client sent it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

import aiohttp
import msgspec

from loadtests.engines import load
from loadtests.generator import GeneratorLoad, read_loads
from loadtests.interleaving import PlannedRun
from loadtests.percentiles import percentile
from loadtests.plan import Engine, LoadPlan
from loadtests.rows import Row, read_rows
from loadtests.stamped import Stamps, serving
from loadtests.targets import Target

USERS = 50
SECONDS = 6.0
TOLERANCE_MS = 2.0
MILLISECOND = 1_000_000
SCRIPTS = (
    *("first=0.05 gap=0.02 sends=20",) * 6,
    "first=0.2 gap=0.05 sends=8",
    "first=0.1 gap=0.01 sends=40 end=cut",
)


class Figure(TypedDict):
    """One line of the benchmark."""

    name: str
    value: float
    unit: str
    target: float
    ok: bool
    how: str


@dataclass(frozen=True, slots=True)
class Truth:
    """What one engine measured of `rows`, and the target's own stamps by message."""

    engine: Engine
    rows: Sequence[Row]
    stamps: Mapping[str, Stamps]
    generators: Sequence[GeneratorLoad]

    def errors(self) -> list[float]:
        """Measured less true moment of every first text, milliseconds, ascending."""
        pairs = self._first_texts()
        return sorted(abs(measured - true) / MILLISECOND for measured, true in pairs)

    def off(self, p: float) -> float:
        """Difference of a percentile of measured TTFTs from that of the true ones, ms."""
        pairs = self._first_texts()
        measured = percentile(sorted(pair[0] for pair in pairs), p)
        true = percentile(sorted(pair[1] for pair in pairs), p)
        return abs(measured - true) / MILLISECOND

    def _first_texts(self) -> list[tuple[int, int]]:
        return [
            (row.first_token, self.stamps[row.message_id].texts[0] - row.sent)
            for row in self.rows
            if row.first_token is not None
        ]

    @property
    def cut_taken_for_served(self) -> int:
        """How many cut streams are not called truncated."""
        return sum(
            row.ending != "truncated"
            for row in self.rows
            if self.stamps[row.message_id].sent[-1][0] != "END"
        )

    @property
    def cpu_per_event(self) -> float:
        """Microseconds of the generator's CPU for each event it read."""
        events = sum(row.events for row in self.rows)
        return sum(generator.cpu for generator in self.generators) * 1e6 / max(events, 1)


async def observe(engine: Engine, *, users: int = USERS, seconds: float = SECONDS) -> Truth:
    """Load a stamped target and fetch its stamps."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        messages = write_scripts(folder / "messages.jsonl", SCRIPTS)
        async with serving() as url:
            target = Target(stack="stamped", url=url)
            # An open loop with as many streams under way as a closed one with no pause.
            plan = LoadPlan(
                targets=(target,), messages=messages, users=users, seconds=seconds, engine=engine
            )
            plan = msgspec.structs.replace(plan, think=0.2, rate=users / 0.65)
            await load(plan, PlannedRun(0, 0, "stamped", 1), folder / "rows")
            stamps = await fetch_stamps(url)
        rows = [row for path in (folder / "rows").glob("rows-*") for row in read_rows(path)]
        # What the generator gave up when its time was over may never have reached the target.
        sent = [row for row in rows if row.ending != "cancelled"]
        return Truth(engine, sent, stamps, read_loads(folder / "rows"))


def write_scripts(path: Path, scripts: Sequence[str]) -> Path:
    """Write a messages file that tells the stamped target what to do."""
    lines = [
        msgspec.json.encode({"message_id": f"m{number}", "content": script, "user_name": "ann"})
        for number, script in enumerate(scripts)
    ]
    path.write_bytes(b"\n".join(lines))
    return path


async def fetch_stamps(url: str) -> dict[str, Stamps]:
    """Read, and so reset, the stamps of a target, by message."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/stamps") as response:
        stamps = msgspec.json.decode(await response.read(), type=list[Stamps])
    return {stamp.message_id: stamp for stamp in stamps}


def figures(truth: Truth) -> list[Figure]:
    """Put what was observed into figures."""
    errors = truth.errors()
    how = f"{len(errors)} streams, {USERS} users, {truth.engine}, stamped target on loopback"
    name = f"load.{truth.engine}"
    return [
        _at_most(f"{name}.ttft_p50_off", truth.off(0.50), "ms", TOLERANCE_MS, how),
        _at_most(f"{name}.ttft_p95_off", truth.off(0.95), "ms", TOLERANCE_MS, how),
        _at_most(f"{name}.stamp_error_p95", percentile(errors, 0.95), "ms", TOLERANCE_MS, how),
        _at_most(f"{name}.cut_taken_for_served", truth.cut_taken_for_served, "streams", 0, how),
        _at_most(f"{name}.cpu_per_event", truth.cpu_per_event, "µs", 200.0, how),
    ]


def _at_most(name: str, value: float, unit: str, target: float, how: str) -> Figure:
    return Figure(
        name=name, value=round(value, 4), unit=unit, target=target, ok=value <= target, how=how
    )


def measure() -> list[Figure]:
    """Measure both engines; takes about twenty seconds."""
    engines: tuple[Engine, ...] = ("locust", "open")
    return [line for engine in engines for line in figures(asyncio.run(observe(engine)))]


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(measure())).decode() + "\n")
