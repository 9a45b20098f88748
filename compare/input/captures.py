"""Echoes: what one sequence repeats of another that is nearly the same, found by looking ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol

import msgspec

from compare.input.calls import answers_of
from compare.input.damage import ILLEGIBLE, Damage
from compare.input.segments import Line
from contract.records import (
    VERSION,
    EntryRecord,
    ErrorRecord,
    ModelUse,
    Outcome,
    RequestRecord,
    RunHead,
    RunRecord,
    decode_run,
)

AHEAD = 3


class Sent(Protocol):
    """What a client saw of a run: a run's record has it, and so has a glance at one."""

    @property
    def frames(self) -> Sequence[tuple[int, object]]:
        """As in `RunRecord`, and so below."""
        ...

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        ...

    @property
    def error(self) -> ErrorRecord | None:
        """And why."""
        ...


def sent_alike(control: Sent, candidate: Sent) -> bool:
    """Whether both runs sent the same bytes and ended alike."""
    if control.outcome != candidate.outcome or control.error != candidate.error:
        return False
    if len(control.frames) != len(candidate.frames):
        return False
    for (_, old), (_, new) in zip(control.frames, candidate.frames, strict=True):
        if old != new:
            return False
    return True


def echoes(items: Iterable[object], others: Sequence[object]) -> Iterator[int | None]:
    """Yield, for every item, the index of an equal one among the others, None where none is near.

    A few items dropped, added or changed are looked past; nothing is hashed, for frames are long.
    """
    due, end = 0, len(others)
    for item in items:
        found = None
        if due < end and others[due] == item:  # the usual one
            found = due
        else:
            for index in range(due + 1, min(due + AHEAD, end)):
                if others[index] == item:
                    found = index
                    break
        if found is not None:
            due = found + 1
        yield found


_NOTHING = msgspec.Raw(b"null")


Stamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Microseconds, in the eight bytes they are collected in: a moment beyond is no clock's."""

Frames = tuple[tuple[Stamp, msgspec.Raw], ...]
"""Frames as they stand in a line: when, and a JSON text that is not decoded."""


class Glance(RunHead, frozen=True, kw_only=True):
    """A run's line; fields of type Raw are as in `RunRecord`, and not looked into."""

    request: msgspec.Raw = _NOTHING
    frames: Frames = ()
    tape: msgspec.Raw = _NOTHING
    models: msgspec.Raw = msgspec.Raw(b"[]")


class Seen(NamedTuple):
    """A run as it was glanced at, and where it stands."""

    glance: Glance
    line: Line
    place: str


Twin = tuple[Glance, RunRecord]
"""A run of the same exchange, glanced at and read whole."""

_glance = msgspec.json.Decoder(Glance).decode
_request = msgspec.json.Decoder(RequestRecord | None).decode
_tape = msgspec.json.Decoder(tuple[EntryRecord, ...] | None).decode
_models = msgspec.json.Decoder(tuple[ModelUse, ...]).decode
_text = msgspec.json.Decoder(str).decode


def glance_at(line: bytes) -> Glance:
    """Glance at one line; raises one of `ILLEGIBLE`."""
    if not line.isascii():
        line.decode()  # what stays raw is known to be JSON then, but not to be text
    return _glance(line)


def whole(seen: Seen, twin: Twin | None = None) -> RunRecord | Damage:
    """Read the rest of a run; what cannot be read makes its line a broken one.

    Frames equal to those of a `twin` read before are the same objects, and so quick to compare.
    """
    return _read(seen, lambda: tuple(_frames(seen.glance.frames, twin)))


def asked(seen: Seen) -> RunRecord | Damage:
    """Read the rest of a run as `whole` does, but for its frames."""
    return _read(seen, tuple)


def _read(seen: Seen, frames: Callable[[], tuple[tuple[int, str], ...]]) -> RunRecord | Damage:
    glance = seen.glance
    fields = {name: getattr(glance, name) for name in glance.__struct_fields__}
    try:
        fields["frames"] = frames()
        fields["request"] = _request(glance.request)
        fields["tape"] = _tape(glance.tape)
        fields["models"] = _models(glance.models)
    except ILLEGIBLE as trouble:
        return Damage("broken", seen.place, f"{seen.line.place}: {trouble}")
    return RunRecord(**fields)


def _frames(frames: Frames, twin: Twin | None) -> Iterator[tuple[int, str]]:
    if twin is None:
        yield from ((at, _text(raw)) for at, raw in frames)
        return
    raws = [raw for _, raw in twin[0].frames]
    repeated = echoes((raw for _, raw in frames), raws)
    for (at, raw), index in zip(frames, repeated, strict=True):
        yield at, _text(raw) if index is None else twin[1].frames[index][1]


def asked_alike(control: Glance, candidate: Glance) -> bool:
    """Whether both runs were given the same answers to the same questions."""
    if _NOTHING not in (control.tape, candidate.tape):
        return False  # of two tapes the numbers of entries say nothing
    return _answers(control) == _answers(candidate)


def _answers(glance: Glance) -> list[object]:
    """List the entries that answered; a tape nobody played stands for itself."""
    if not glance.plays and glance.tape != _NOTHING:
        return [object()]
    return answers_of(glance.plays)


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
