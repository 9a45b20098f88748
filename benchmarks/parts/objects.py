"""What captures cost on an object store: bytes, requests, processor time; prints figures as JSON.

python -m benchmarks.parts.objects ROUNDS
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from benchmarks.parts.compare import STREAMS, runs_of
from benchmarks.rows import BenchRow, at_most, reported
from contract.flows.chat import CHAT
from contract.records import RunRecord
from effects.places import Place
from router.capture.writer import CaptureCounts, CaptureWriter
from router.config.schema import CaptureSettings

EXCHANGES: Final = 1_000
OBJECT_BYTES: Final = 1 << 18
"""Of an object: so many exchanges fill several."""
MOST_OVER_DISK: Final = 1.2
PLACE: Final = "memory://bench"


class Written(NamedTuple):
    """What writing exchanges took: seconds of processor time, and what the writer counted."""

    seconds: float
    counts: CaptureCounts


def main() -> None:
    """Measure and print."""
    sys.stdout.buffer.write(msgspec.json.encode(measure(int(sys.argv[1]))))


def measure(rounds: int) -> list[BenchRow]:
    """Write the same exchanges to a disk and to objects in memory, in turn."""
    exchanges = [runs_of(number) for number in range(EXCHANGES)]
    disk, objects = [], []
    puts = 0
    for _ in range(rounds):
        with TemporaryDirectory() as folder:
            disk.append(asyncio.run(written(folder, exchanges)))
        objects.append(asyncio.run(written(PLACE, exchanges)))
        place = Place(PLACE)
        paths = list(place.below(place.root))
        puts = len(paths)
        place.remove_all(paths)
    counts = objects[0].counts
    how = f"{EXCHANGES:,} exchanges with their shadows, {STREAMS}"
    ratio = min(one.seconds for one in objects) / min(one.seconds for one in disk)
    over = f"{how}; processor time, the least of {rounds} rounds over that of a disk"
    return [
        reported("objects.bytes", counts.bytes / counts.written, "bytes an exchange", how),
        reported("objects.puts", puts, "puts", f"{how}; objects of {OBJECT_BYTES:,} bytes"),
        at_most("objects.over_disk", ratio, "times", MOST_OVER_DISK, over),
    ]


async def written(place: str, exchanges: Sequence[tuple[RunRecord, RunRecord]]) -> Written:
    """Capture exchanges at a place."""
    captures = CaptureSettings(path=place, object_bytes=OBJECT_BYTES)
    writer = CaptureWriter(captures, {"chat": CHAT}, salt="bench", key=b"bench")
    began = time.process_time()
    for runs in exchanges:
        writer.put(runs)
    await writer.aclose(deadline=600.0)
    return Written(time.process_time() - began, writer.counts)


if __name__ == "__main__":
    main()
