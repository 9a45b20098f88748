"""Glances: runs read no further than most comparisons look: texts and tapes stay as bytes.

Two runs that sent the same bytes and were answered the same need no more. What a comparison has to
look into is decoded then, and is what reading the line at once would have given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from compare.calls import answers_of
from compare.damage import ILLEGIBLE, Damage
from compare.echoes import echoes
from contract.records import EntryRecord, ModelUse, RequestRecord, RunHead, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compare.segments import Line

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
