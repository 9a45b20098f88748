"""Captured exchanges: lines read as runs, and neighbouring runs of one id as one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from compare.input.damage import ILLEGIBLE, Damage
from compare.input.segments import CapturedLine
from contract.records import VERSION, RunRecord

Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Microseconds, in the eight bytes in which times are collected."""
AHEAD = 3


RawFrames = tuple[tuple[Stamp, msgspec.Raw], ...]


class _RawRun(RunRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A run, its frames as they stand in the line; stamps that no clock gives are refused."""

    frames: RawFrames = ()  # type: ignore[assignment]


Exchange = tuple[RunRecord, ...]
"""All the runs of one exchange, as they were written."""


class CapturedExchange(NamedTuple):
    """One exchange; `beside_damage` when a line of it may have been lost."""

    runs: Exchange
    beside_damage: bool = False


class _Versioned(msgspec.Struct):
    v: int | str | None = None


_run = msgspec.json.Decoder(_RawRun).decode
_text = msgspec.json.Decoder(str).decode
_texts = msgspec.json.Decoder(list[str]).decode
_versioned = msgspec.json.Decoder(_Versioned).decode


def exchanges(
    lines: Iterable[CapturedLine | Damage], place: str
) -> Iterator[CapturedExchange | Damage]:
    """Group lines into exchanges; damage is passed on where it stood."""
    runs: list[RunRecord] = []
    reader = _RunReader(place)
    damaged = near = False
    for line in lines:
        read = line if isinstance(line, Damage) else reader.read(line)
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


class _RunReader:
    """Reads lines as runs of this version; what runs of an exchange share is decoded once."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._exchange = ""
        self._raw: list[msgspec.Raw] = []
        self._texts: list[str] = []

    def read(self, line: CapturedLine) -> RunRecord | Damage:
        """Read one line, or describe what it is instead of a run."""
        try:
            run = _run(line.data)
            if not line.data.isascii():
                _check_text(run)
            raw: list[msgspec.Raw] = [frame for _, frame in run.frames]
            if run.exchange != self._exchange:
                self._texts = _texts(b"[%b]" % b",".join(raw))
            elif raw != self._raw:
                self._texts = [
                    _text(frame) if index is None else self._texts[index]
                    for frame, index in zip(raw, repeats(raw, self._raw), strict=True)
                ]
        except ILLEGIBLE as trouble:
            return _damage(line, self._place, f"{line.place}: {trouble}")
        self._exchange, self._raw = run.exchange, raw
        stamps = [at for at, _ in run.frames]
        msgspec.structs.force_setattr(run, "frames", tuple(zip(stamps, self._texts, strict=True)))
        return run


def _check_text(run: RunRecord) -> None:
    """Raise `UnicodeDecodeError` where what stays raw, and is known to be JSON, is no text."""
    raw: list[msgspec.Raw] = [play.args for play in run.plays if play.args is not None]
    if run.request is not None:
        raw += run.request.body, run.request.options
    for entry in run.tape or ():
        raw += entry.args, *entry.items
    b"".join(raw).decode()


def _damage(line: CapturedLine, place: str, why: str) -> Damage:
    if not line.ended:
        return Damage("torn", place, f"{line.place} does not end")
    try:
        version = _versioned(line.data).v
    except ILLEGIBLE:
        version = None
    if version in {VERSION, None}:
        return Damage("broken", place, why)
    return Damage("foreign", place, f"{line.place}: version {version!r}, not {VERSION}")


def repeats(items: Iterable[object], others: Sequence[object]) -> Iterator[int | None]:
    """Yield, for every item, the index of an equal one among the others, None where none is near.

    A few items dropped, added or changed are looked past; nothing is hashed, for frames are long.
    """
    due, end = 0, len(others)
    for item in items:
        found = None
        if due < end and others[due] == item:  # the usual one
            found = due
        else:
            ahead = range(due + 1, min(due + AHEAD, end))
            found = next((index for index in ahead if others[index] == item), None)
        if found is not None:
            due = found + 1
        yield found
