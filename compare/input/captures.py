"""Captured exchanges: lines read as runs, and neighbouring runs of one id as one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec

from compare.input.damage import ILLEGIBLE, Damage
from compare.input.segments import CapturedLine
from contract.records import VERSION, RunRecord

Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Microseconds, in the eight bytes in which times are collected."""


class CapturedRun(RunRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A run as it was captured; stamps that no clock can give make its line a broken one."""

    frames: tuple[tuple[Stamp, str], ...] = ()


Exchange = tuple[RunRecord, ...]
"""All the runs of one exchange, as they were written."""


class CapturedExchange(NamedTuple):
    """One exchange; `beside_damage` when a line of it may have been lost."""

    runs: Exchange
    beside_damage: bool = False


class _Versioned(msgspec.Struct):
    v: int | str | None = None


_run = msgspec.json.Decoder(CapturedRun).decode
_versioned = msgspec.json.Decoder(_Versioned).decode


def exchanges(
    lines: Iterable[CapturedLine | Damage], place: str
) -> Iterator[CapturedExchange | Damage]:
    """Group lines into exchanges; damage is passed on where it stood."""
    runs: list[RunRecord] = []
    damaged = near = False
    for line in lines:
        read = line if isinstance(line, Damage) else read_run(line, place)
        if isinstance(read, Damage):
            damaged = near = True
            yield read
            continue
        if runs and runs[0].exchange != read.exchange:
            yield CapturedExchange(tuple(runs), damaged)
            runs, damaged = [], near
        runs.append(read)
        near = False
    if runs:
        yield CapturedExchange(tuple(runs), damaged)


def read_run(line: CapturedLine, place: str) -> RunRecord | Damage:
    """Read one line as a run of this version, or describe what it is instead."""
    try:
        if not line.data.isascii():
            line.data.decode()  # what stays raw is known to be JSON then, but not to be text
        return _run(line.data)
    except ILLEGIBLE as trouble:
        why = f"{line.place}: {trouble}"
    if not line.ended:
        return Damage("torn", place, f"{line.place} does not end")
    try:
        version = _versioned(line.data).v
    except ILLEGIBLE:
        version = None
    if version in {VERSION, None}:
        return Damage("broken", place, why)
    return Damage("foreign", place, f"{line.place}: version {version!r}, not {VERSION}")
