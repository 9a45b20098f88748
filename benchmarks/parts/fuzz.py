"""Damaged input at the readers: no input raises what its reader does not declare, none hangs it.

Each reader is given the inputs whole and cut at random places, and has to read the same of both.

python -m benchmarks.parts.fuzz INPUTS
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

import msgspec
import zstandard
from rich.progress import track

from benchmarks.rows import SEED, BenchRow, at_most, reported
from compare.input.batches import decompressed
from compare.input.captures import exchanges
from compare.input.segments import split_lines
from contract.errors import CutoverError
from contract.records import EntryRecord, RequestRecord, RunRecord, encode_run
from contract.wire.sse import SseDecoder
from effects.model.stream import RawAssembler, StreamAssembler

PATIENCE_S: Final = 2.0
"""Far longer than any of these inputs takes, on a machine that does other things, too."""
MOST_CHANGES: Final = 4
LONGEST: Final = 1 << 14
_PIECES: Final = 4

Pieces = Sequence[bytes]

_STREAM = (
    b': keep-alive\n\nevent: chunk\nid: 7\ndata: {"choices":[{"index":0,"delta":{"role":"assistant"'
    b',"content":""}}],"model":"m"}\n\ndata: {"choices":[{"index":0,"delta":{"content":"\xe4\xbd'
    b'\xa0 \\ud83d"}}]}\n\ndata: {"choices":[{"index":0,"delta":{"content":"\\ude00","tool_calls":'
    b'[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\\"a\\":"}}]}}]}\n\ndata: {'
    b'"choices":[{"delta":{"reasoning_content":"why"},"finish_reason":"stop"}],"usage":{'
    b'"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\ndata: [DONE]\n\n'
)
_ERROR = b'event: error\ndata: {"error":{"message":"no","type":"server_error","code":500}}\n\n'
_RUN = RunRecord(
    v=1,
    exchange="e-1",
    flow="chat",
    role="serving",
    stack="legacy",
    assigned="legacy",
    served="legacy",
    began=1_700_000_000_000_000,
    outcome="completed",
    request=RequestRecord(msgspec.Raw(b'{"content":"hi"}'), msgspec.Raw(b"{}")),
    frames=((1, 'data: {"step":"START"}\n\n'), (5, 'data: {"content":"你 🙂"}\n\n')),
    tape=(
        EntryRecord(
            seq=0,
            port="model",
            op="stream",
            site="reply",
            at=2,
            end="complete",
            args=msgspec.Raw(b'{"messages":[]}'),
            items=(msgspec.Raw(b'{"text":"a"}'), msgspec.Raw(b"null")),
        ),
    ),
)
_SHADOW = msgspec.structs.replace(_RUN, role="shadow", stack="graph", tape=None)
_LINES = encode_run(_RUN) + encode_run(_SHADOW)
_JUNK = (
    *(
        b"\n",
        b"\r",
        b"\r\n\n",
        b"\0",
        b"\xff",
        b"\xed\xa0\xbd",
        b"\xef\xbb\xbf",
        b"data: ",
        b"event:",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b'"',
        b"\\ud83d",
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"9" * 40,
        b"[" * 2_000,
    ),
    *(
        b'{"a":' * 1_500,
        b"[DONE]",
        b"data: [DONE]\n\n",
        b"\x28\xb5\x2f\xfd",
        b'"finish_reason":"error"',
    ),
)


@dataclass(frozen=True, slots=True)
class FuzzedReader:
    """A reader: what it makes of pieces, comparable; `seeds` are inputs it can read."""

    name: str
    read: Callable[[Pieces], object]
    seeds: tuple[bytes, ...]


class ReaderHung(CutoverError):
    """A reader took longer than any input may."""

    def __init__(self) -> None:
        super().__init__(f"an input took more than {PATIENCE_S} s")


def _events(pieces: Pieces) -> object:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


def _chunks(pieces: Pieces) -> object:
    assembler = StreamAssembler()
    chunks = [chunk for piece in pieces for chunk in assembler.feed(piece)]
    raw = RawAssembler()
    for piece in pieces:
        raw.feed(piece)
    return chunks, assembler.end(), assembler.malformed, raw.end()


def _captured(pieces: Pieces) -> object:
    packed = list(exchanges(split_lines(decompressed(pieces, "packed"), "packed"), "packed"))
    return msgspec.json.encode(packed)


READERS: Final = (
    FuzzedReader("sse", _events, (_STREAM, _ERROR + _STREAM)),
    FuzzedReader("provider", _chunks, (_STREAM, _STREAM[:400] + _ERROR, _ERROR)),
    FuzzedReader(
        "captures",
        _captured,
        (
            zstandard.compress(_LINES),
            zstandard.compress(_LINES[:300]) + zstandard.compress(_LINES),
            zstandard.ZstdCompressor(write_checksum=True).compress(_LINES),
        ),
    ),
)


def main() -> None:
    """Fuzz every reader and print the rows as JSON."""
    inputs = int(sys.argv[1])
    sys.stdout.buffer.write(
        msgspec.json.encode([row for one in READERS for row in fuzz(one, inputs)])
    )


def fuzz(reader: FuzzedReader, inputs: int) -> list[BenchRow]:
    """Feed a reader so many damaged inputs; an input that it fails on is named in its row."""
    chance = random.Random(f"{SEED} {reader.name}")
    failed: list[str] = []
    signal.signal(signal.SIGALRM, _hung)
    began = time.perf_counter()
    for _ in track(range(inputs), reader.name, transient=True, disable=not sys.stderr.isatty()):
        data = damaged(chance, reader.seeds)
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
            whole, cut = reader.read([data]), reader.read(cuts(chance, data))
        except Exception as error:  # noqa: BLE001 - any exception is what is looked for
            failed.append(f"{type(error).__name__}: {data[:300]!r}")
        else:
            if whole != cut:
                failed.append(f"read otherwise in pieces: {data[:300]!r}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    rate = inputs / (time.perf_counter() - began)
    how = f"{inputs:,} damaged inputs, each whole and in pieces, must be read without an exception"
    if failed:
        how += f"; the first: {failed[0]}"
    return [
        at_most(f"fuzz.{reader.name}.failed", len(failed), "inputs", 0, how),
        reported(f"fuzz.{reader.name}.rate", rate, "inputs/s", how),
    ]


def damaged(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds with one to four changes: bytes flipped, lost, doubled, put in."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, MOST_CHANGES)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + int(chance.expovariate(1 / 12)))
        match chance.randrange(5):
            case 0 if start < len(data):
                data[start] ^= 1 << chance.randrange(8)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end]
            case 3:
                data[start:start] = chance.choice(_JUNK)
            case _:
                other = chance.choice(seeds)
                data[start:] = other[chance.randrange(len(other)) :]
    return bytes(data[:LONGEST])


def cuts(chance: random.Random, data: bytes) -> Pieces:
    """Cut an input at up to three places."""
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(_PIECES)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise ReaderHung


if __name__ == "__main__":
    main()
