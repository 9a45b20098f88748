"""One segment of captures: read batch by batch, and written anew without some of its exchanges."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from compare.input.batches import Batch, decompressed
from compare.input.damage import Damage
from router.capture.segments import compressor, exclusive, in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_PIECE = 1 << 20
_BLOB = re.compile(rb'{"blob":"([0-9a-f]{64})","bytes":\d+}')


class _Exchange(msgspec.Struct):
    exchange: str


_exchange = msgspec.json.Decoder(_Exchange)


def exchange_of(line: bytes) -> str:
    """Give the exchange a line belongs to; "" where it is no line of ours."""
    try:
        return _exchange.decode(line).exchange
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


@dataclass(slots=True)
class Removed:
    """What went out of one segment: the exchanges of its lines, and the blobs they name."""

    exchanges: set[str] = field(default_factory=set)
    blobs: set[bytes] = field(default_factory=set)


class Segment:
    """A segment below an fsspec place; `local` ones are replaced while nobody appends to them."""

    def __init__(self, system: Any, path: str, *, local: bool) -> None:
        self._system = system
        self.path = path
        self._local = local
        self.damaged = False
        """Whether damage has been seen so far."""

    def exchanges(self, wanted: Callable[[bytes], bool]) -> set[str]:
        """Give the exchanges of the lines that are wanted."""
        return {exchange_of(line) for line in self._lines() if wanted(line)}

    def blobs(self) -> Iterator[bytes]:
        """Yield the digests of all blobs that are named."""
        for line in self._lines():
            yield from _BLOB.findall(line)

    def without(self, exchanges: Collection[str]) -> Removed:
        """Write the segment anew without these exchanges, if it holds any, or any damage.

        What is damaged is left out: nobody can tell whose it is. An empty segment is removed.
        """
        if not self._local:
            with self._system.open(self.path, "rb") as file:
                return self._rewritten(file, exchanges, self._put)
        while True:
            with Path(self.path).open("rb") as file, exclusive(file):
                if in_place(file, self.path):
                    return self._rewritten(file, exchanges, self._replace)

    def _lines(self) -> Iterator[bytes]:
        with self._system.open(self.path, "rb") as file:
            for batch in _batches(file, self.path):
                self.damaged |= batch is None
                yield from batch or ()

    def _rewritten(
        self,
        file: IO[bytes],
        exchanges: Collection[str],
        store: Callable[[bytes], None],
    ) -> Removed:
        removed = Removed()
        kept: list[bytes] = []
        changed = False
        pack = compressor()
        for batch in _batches(file, self.path):
            lines = []
            for line in batch or ():
                exchange = exchange_of(line)
                if exchange in exchanges:
                    removed.exchanges.add(exchange)
                    removed.blobs |= set(_BLOB.findall(line))
                else:
                    lines.append(line)
            changed |= batch is None or len(lines) < len(batch)
            if lines:
                kept.append(pack.compress(b"".join(lines)))
        if changed:
            store(b"".join(kept))
        return removed

    def _put(self, content: bytes) -> None:
        if content:
            self._system.pipe_file(self.path, content)
        else:
            self._system.rm_file(self.path)

    def _replace(self, content: bytes) -> None:
        path = Path(self.path)
        if not content:
            path.unlink()
            return
        before = path.stat()
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # As old as it was: the oldest go first where room is needed.
        os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
        beside.replace(path)


def _batches(file: IO[bytes], path: str) -> Iterator[list[bytes] | None]:
    """Yield the whole lines of each batch; None where something is damaged or cut off."""
    pieces = iter(lambda: file.read(_PIECE), b"")
    for _, parts in groupby(decompressed(pieces, path), key=_batch_of):
        data = bytearray()
        for part in parts:
            if isinstance(part, Damage):
                yield None
            else:
                data += part.data
        *lines, rest = data.split(b"\n")
        yield [bytes(line) + b"\n" for line in lines]
        if rest:
            yield None


def _batch_of(part: Batch | Damage) -> int | None:
    return part.begins if isinstance(part, Batch) else None
