"""Captured exchanges: lines read as runs, and runs of one id as one exchange."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
import orjson

from compare.input.damage import ILLEGIBLE, Damage
from compare.input.segments import CapturedLine
from contract.records import VERSION, RunRecord

Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Microseconds, in the eight bytes in which times are collected."""
AHEAD = 3
HELD_BYTES = 1 << 26
"""Of lines whose exchange is not whole: more wait for their second run than any queue holds."""
_AWAITED_BYTES = 1 << 25
"""Of lines whose frames are kept for a second run: what comes later is decoded by itself."""

_Frames = tuple[tuple[msgspec.Raw, ...], list[str]]
"""The frames of a run, as they stand in its line and as texts."""
RawFrames = tuple[tuple[Stamp, msgspec.Raw], ...]


def new_series() -> array[int]:
    """Return an empty array of numbers of eight bytes, as stamps and identities are."""
    return array("q")


class _RawRun(RunRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A run, its frames as they stand in the line; stamps that no clock gives are refused."""

    frames: RawFrames = ()  # type: ignore[assignment]


Exchange = tuple[RunRecord, ...]
"""All the runs of one exchange, as they were written."""


class CapturedExchange(NamedTuple):
    """One exchange; `beside_damage` when a line of it may have been lost; `size` of its lines."""

    runs: Exchange
    beside_damage: bool = False
    size: int = 0


class LineHead(msgspec.Struct, frozen=True):
    """What the line of a run says of its exchange; "" where it does not."""

    exchange: str = ""
    role: str = ""
    shadow: str = ""


class _Versioned(msgspec.Struct):
    v: int | str | None = None


_run = msgspec.json.Decoder(_RawRun).decode
_head = msgspec.json.Decoder(LineHead).decode
_text = msgspec.json.Decoder(str).decode
_checked_texts = msgspec.json.Decoder(list[str]).decode
_versioned = msgspec.json.Decoder(_Versioned).decode


def head_of(line: bytes) -> LineHead:
    """Return the head of a line; an empty one of a line that is no record."""
    try:
        return _head(line)
    except ILLEGIBLE:
        return LineHead()


def exchanges(
    lines: Iterable[CapturedLine | Damage],
    place: str,
    halves: HalfExchanges | None = None,
    on_run: Callable[[RunRecord], None] | None = None,
) -> Iterator[CapturedExchange | Damage]:
    """Group lines into exchanges; damage is passed on where it stood.

    One whose second run is missing is held until its line has come, whatever stands between them:
    in `halves`, where lines of other places follow. `on_run` gets each run as it is read.
    """
    held = HalfExchanges() if halves is None else halves
    runs: list[RunRecord] = []
    size = 0
    reader = _RunReader(place)
    damaged = near = False
    for line in lines:
        read = line if isinstance(line, Damage) else reader.read(line)
        if isinstance(read, Damage):
            damaged = near = True
            held.beside_damage()
            yield read
            continue
        if on_run is not None:
            on_run(read)
        if runs and runs[0].exchange != read.exchange:
            yield from held.join(CapturedExchange(tuple(runs), damaged, size))
            runs, damaged, size = [], near, 0
        runs.append(read)
        size += 0 if isinstance(line, Damage) else len(line.data)
        near = False
    if runs:
        yield from held.join(CapturedExchange(tuple(runs), damaged, size))
    if halves is None:
        yield from held.rest()


class HalfExchanges:
    """Holds exchanges of which a run must stand elsewhere, the oldest first."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[CapturedExchange, int]] = {}
        self._size = self._damages = 0

    def join(self, exchange: CapturedExchange) -> Iterator[CapturedExchange]:
        """Take in neighbouring runs; yields what is whole by that, or is held no longer."""
        name = exchange.runs[0].exchange
        if name in self._held:
            held = self._take(name)
            exchange = CapturedExchange(
                (*held.runs, *exchange.runs),
                held.beside_damage or exchange.beside_damage,
                held.size + exchange.size,
            )
        if exchange.runs[0].role == "shadow" != exchange.runs[-1].role:  # as it is written: last
            runs = sorted(exchange.runs, key=lambda run: run.role == "shadow")
            exchange = exchange._replace(runs=tuple(runs))
        if not _is_half(exchange.runs):
            settled = _as_settled(exchange.runs)
            yield exchange if settled is exchange.runs else exchange._replace(runs=settled)
            return
        self._held[name] = exchange, self._damages
        self._size += exchange.size
        while self._size > HELD_BYTES and len(self._held) > 1:
            yield self._take(next(iter(self._held)))

    def beside_damage(self) -> None:
        """The run that is missing may have stood in a line that was lost."""
        self._damages += 1

    def rest(self) -> Iterator[CapturedExchange]:
        """Yield what is held still: no line of it follows."""
        for name in tuple(self._held):
            yield self._take(name)

    def _take(self, name: str) -> CapturedExchange:
        exchange, damages = self._held.pop(name)
        self._size -= exchange.size
        damaged = exchange.beside_damage or damages != self._damages
        return exchange._replace(beside_damage=damaged)


def _is_half(runs: Exchange) -> bool:
    """Whether a run of an exchange is missing: the serving one, or the second that is due."""
    return lacks_a_run({run.role for run in runs}, runs[0].shadow)


def lacks_a_run(roles: Collection[str], shadow: str) -> bool:
    """Whether runs of these roles lack one; `shadow` is what the serving run's line says of it."""
    return roles == {"shadow"} or (roles == {"serving"} and shadow == "due")


def _as_settled(runs: Exchange) -> Exchange:
    """Let the serving run say what a line of its own says of a second run that never came."""
    notes = [run for run in runs if is_not_to_come(run)]
    if not notes or runs[0].role != "serving":
        return runs
    reason = notes[0].error.code if notes[0].error else ""
    serving = msgspec.structs.replace(runs[0], shadow=notes[0].shadow, shadow_reason=reason)
    return (serving, *(run for run in runs[1:] if not is_not_to_come(run)))


def is_not_to_come(run: RunRecord | LineHead) -> bool:
    """Whether a line stands for a second run that was dropped, or never came."""
    return run.role == "shadow" and run.shadow not in {"", "due"}


class _RunReader:
    """Reads lines as runs of this version; what runs of an exchange share is decoded once."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._exchange = ""
        self._frames: _Frames = (), []
        self._awaited: dict[str, tuple[_Frames, int]] = {}
        """Frames of runs whose second run may come later, and sizes of their lines, in order."""
        self._awaited_bytes = 0

    def read(self, line: CapturedLine) -> RunRecord | Damage:
        """Read one line, or describe what it is instead of a run."""
        try:
            run = _run(line.data)
            if not line.data.isascii():
                _check_text(run)
            stamps, raw = zip(*run.frames, strict=True) if run.frames else ((), ())
            known, texts = self._known(run.exchange)
            if known is None:
                texts = _texts(raw)
            elif raw != known:
                texts = [
                    _text(frame) if index is None else texts[index]
                    for frame, index in zip(raw, repeats(raw, known), strict=True)
                ]
        except ILLEGIBLE as trouble:
            return damage_of(line, self._place, f"{line.place}: {trouble}")
        self._exchange, self._frames = run.exchange, (raw, texts)
        if run.shadow == "due":
            self._awaited[run.exchange] = self._frames, len(line.data)
            self._awaited_bytes += len(line.data)
            while self._awaited_bytes > _AWAITED_BYTES:
                self._take(next(iter(self._awaited)))
        msgspec.structs.force_setattr(run, "frames", tuple(zip(stamps, texts, strict=True)))
        return run

    def _known(self, exchange: str) -> tuple[tuple[msgspec.Raw, ...] | None, list[str]]:
        """Return the frames of the run that was read last of an exchange, if that is near."""
        awaited = self._take(exchange)
        if exchange == self._exchange:
            return self._frames
        return (None, []) if awaited is None else awaited

    def _take(self, exchange: str) -> _Frames | None:
        """Take frames out of those that are kept."""
        frames, size = self._awaited.pop(exchange, (None, 0))
        self._awaited_bytes -= size
        return frames


def _texts(raw: Iterable[bytes]) -> list[str]:
    """Decode frames; raises `msgspec.DecodeError` or `UnicodeDecodeError` where one is no text."""
    joined = b"[%b]" % b",".join(raw)
    try:
        texts: list[str] = orjson.loads(joined)  # in two thirds of the time
    except orjson.JSONDecodeError:
        return _checked_texts(joined)
    return texts if {*map(type, texts)} <= {str} else _checked_texts(joined)


def _check_text(run: RunRecord) -> None:
    """Raise `UnicodeDecodeError` where what stays raw, and is known to be JSON, is no text."""
    raw: list[msgspec.Raw] = [play.args for play in run.plays if play.args is not None]
    if run.request is not None:
        raw += run.request.body, run.request.options
    for entry in run.tape or ():
        raw += entry.args, *entry.items
    b"".join(raw).decode()


def damage_of(line: CapturedLine, place: str, why: str) -> Damage:
    """Describe a line that is no run of this version."""
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
        if due < end and others[due] == item:  # the usual one
            yield due
            due += 1
            continue
        found = None
        for index in range(due + 1, min(due + AHEAD, end)):
            if others[index] == item:
                found, due = index, index + 1
                break
        yield found
