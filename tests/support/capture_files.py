"""Reading captures back, batch by batch, to see what a writer left."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from contract.flows.chat import CHAT
from contract.records import RunRecord, decode_run
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.records import a_run

SPECS = {"chat": CHAT}
BEGAN = 1_795_000_000_000_000  # 2026-11-18


def batches(path: Path) -> Iterator[bytes | None]:
    """Yield the content of every frame of a segment; None for a torn tail."""
    rest = path.read_bytes()
    while rest:
        frame = zstandard.ZstdDecompressor().decompressobj()
        content = frame.decompress(rest)
        yield content if frame.eof else None
        rest = frame.unused_data


def segments(folder: Path) -> list[Path]:
    """List the segments below a folder, in the order they were written."""
    return sorted(folder.rglob("*.jsonl.zst"))


def runs(folder: Path) -> list[RunRecord]:
    """Read every run of every whole batch."""
    return [
        decode_run(line)
        for path in segments(folder)
        if "feedback" not in path.parts
        for content in batches(path)
        for line in (content or b"").splitlines()
    ]


def spoken(exchange: str, content: object = "hello", **fields: Any) -> RunRecord:
    """Return the record of a run that sent its user one frame."""
    from_user = {"message_id": exchange, "content": content}
    frames = ((1, f"data: {msgspec.json.encode(from_user).decode()}\n\n"),)
    return a_run(exchange, began=BEGAN, frames=frames, **fields)


async def write_until_killed(folder: str) -> None:
    """Write exchanges and say on standard output how many are stored for certain."""
    writer = CaptureWriter(CaptureSettings(path=folder, batch=8), SPECS, salt="s")
    for number in range(1_000_000):
        writer.put([spoken(f"{number:08d}", "word " * 200)])
        if number % 20 == 0:
            await writer.flush()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1]))
