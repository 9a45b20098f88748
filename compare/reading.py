"""Reading: lines become runs, contiguous runs of one id an exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compare.damage import ILLEGIBLE, Damage
from compare.glances import Seen, glance_at
from contract.records import VERSION, RunRecord, decode_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from compare.segments import Line

Exchange = tuple[RunRecord, ...]
"""All the runs of one exchange, as they were written."""


class Sighting(NamedTuple):
    """One exchange as it was glanced at; `beside_damage` when a line of it may have been lost."""

    runs: tuple[Seen, ...]
    beside_damage: bool = False


class _Versioned(msgspec.Struct):
    v: int | str | None = None


_versioned = msgspec.json.Decoder(_Versioned)


def exchanges(lines: Iterable[Line | Damage], place: str) -> Iterator[Exchange | Damage]:
    """Group lines into exchanges, read whole; damage is passed on where it stood."""
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


def sightings(lines: Iterable[Line | Damage], place: str) -> Iterator[Sighting | Damage]:
    """Group lines into exchanges, glanced at; damage is passed on where it stood."""
    runs: list[Seen] = []
    damaged = near = False
    for line in lines:
        read = line if isinstance(line, Damage) else _glanced(line, place)
        if isinstance(read, Damage):
            damaged = near = True
            yield read
            continue
        if runs and runs[0].glance.exchange != read.glance.exchange:
            yield Sighting(tuple(runs), damaged)
            runs, damaged = [], near
        runs.append(read)
        near = False
    if runs:
        yield Sighting(tuple(runs), damaged)


def _glanced(line: Line, place: str) -> Seen | Damage:
    try:
        return Seen(glance_at(line.data), line, place)
    except ILLEGIBLE as trouble:
        return _damaged(line, place, str(trouble))


def read_run(line: Line, place: str) -> RunRecord | Damage:
    """Read one line as a run of this version, or say what it is instead."""
    try:
        return decode_run(line.data)
    except ILLEGIBLE as trouble:
        return _damaged(line, place, str(trouble))


def _damaged(line: Line, place: str, why: str) -> Damage:
    if not line.ended:
        return Damage("torn", place, f"{line.place} does not end")
    try:
        version = _versioned.decode(line.data).v
    except ILLEGIBLE:
        return Damage("broken", place, f"{line.place}: {why}")
    if version in {VERSION, None}:
        return Damage("broken", place, f"{line.place}: {why}")
    return Damage("foreign", place, f"{line.place}: version {version!r}, not {VERSION}")
