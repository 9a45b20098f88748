"""Reading: lines become runs, contiguous runs of one id an exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from compare.damage import Damage
from contract.records import VERSION, RunRecord, decode_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compare.segments import Line

Exchange = tuple[RunRecord, ...]
"""All the runs of one exchange, as they were written."""


class _Versioned(msgspec.Struct):
    v: int | str | None = None


_versioned = msgspec.json.Decoder(_Versioned)


def exchanges(lines: Iterable[Line | Damage], place: str) -> Iterator[Exchange | Damage]:
    """Group lines into exchanges; damage is passed on where it stood."""
    runs: list[RunRecord] = []
    for line in lines:
        read = line if isinstance(line, Damage) else read_run(line, place)
        if isinstance(read, Damage):
            yield read
            continue
        if runs and runs[0].exchange != read.exchange:
            yield tuple(runs)
            runs = []
        runs.append(read)
    if runs:
        yield tuple(runs)


def read_run(line: Line, place: str) -> RunRecord | Damage:
    """Read one line as a run of this version, or say what it is instead."""
    try:
        run = decode_run(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as trouble:
        return _damaged(line, place, str(trouble))
    if run.v != VERSION:
        return _foreign(line, place, run.v)
    return run


def _damaged(line: Line, place: str, why: str) -> Damage:
    try:
        version = _versioned.decode(line.data).v
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Damage("broken", place, f"line {line.number}: {why}")
    if version in {VERSION, None}:
        return Damage("broken", place, f"line {line.number}: {why}")
    return _foreign(line, place, version)


def _foreign(line: Line, place: str, version: object) -> Damage:
    return Damage("foreign", place, f"line {line.number}: version {version!r}, not {VERSION}")
