"""Glances: runs read no further than most comparisons look: texts and tapes stay as bytes.

Two runs that sent the same bytes and were answered the same need no more. What a comparison has to
look into is decoded then, and is what reading the line at once would have given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from compare.damage import Damage
from contract.records import (
    VERSION,
    EntryRecord,
    ErrorRecord,
    ModelUse,
    Outcome,
    PlayRecord,
    RequestRecord,
    Role,
    RunRecord,
)

if TYPE_CHECKING:
    from compare.segments import Line

_NOTHING = msgspec.Raw(b"null")


Frames = tuple[tuple[int, msgspec.Raw], ...]
"""Frames as they stand in a line: when, and a JSON text that is not decoded."""


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """A run's line; fields as in `RunRecord`, those of type Raw not looked into."""

    v: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    exchange: str
    flow: str
    role: Role
    stack: str
    assigned: str
    served: str
    reason: str = ""
    bucket: int = -1
    config: str = ""
    code: str = ""
    began: int
    request: msgspec.Raw = _NOTHING
    frames: Frames = ()
    outcome: Outcome
    error: ErrorRecord | None = None
    tape: msgspec.Raw = _NOTHING
    plays: tuple[PlayRecord, ...] = ()
    nodes: dict[str, int] = {}
    models: msgspec.Raw = msgspec.Raw(b"[]")
    cost: float | None = None
    lost_us: int = 0
    sent: int = 0
    redacted: bool = False


class Seen(NamedTuple):
    """A run as it was glanced at, and where it stands."""

    glance: Glance
    line: Line
    place: str


Texts = dict[bytes, str]
"""Frames by their bytes, so that the runs of an exchange share those that are equal."""

_glance = msgspec.json.Decoder(Glance).decode
_request = msgspec.json.Decoder(RequestRecord | None).decode
_tape = msgspec.json.Decoder(tuple[EntryRecord, ...] | None).decode
_models = msgspec.json.Decoder(tuple[ModelUse, ...]).decode
_text = msgspec.json.Decoder(str).decode


def glance_at(line: bytes) -> Glance:
    """Glance at one line; raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
    return _glance(line)


def whole(seen: Seen, texts: Texts) -> RunRecord | Damage:
    """Read the rest of a run; what cannot be read makes its line a broken one."""
    glance = seen.glance
    fields = {name: getattr(glance, name) for name in glance.__struct_fields__}
    try:
        fields["frames"] = tuple((at, _shared(raw, texts)) for at, raw in glance.frames)
        fields["request"] = _request(glance.request)
        fields["tape"] = _tape(glance.tape)
        fields["models"] = _models(glance.models)
    except (msgspec.DecodeError, UnicodeDecodeError) as trouble:
        return Damage("broken", seen.place, f"{seen.line.place}: {trouble}")
    return RunRecord(**fields)


def _shared(raw: msgspec.Raw, texts: Texts) -> str:
    data = bytes(raw)
    text = texts.get(data)
    if text is None:
        text = texts[data] = _text(data)
    return text


def equal_runs(control: Glance, candidate: Glance) -> bool:
    """Whether both runs sent the same bytes and were given the same answers."""
    if control.outcome != candidate.outcome or control.error != candidate.error:
        return False
    if len(control.frames) != len(candidate.frames):
        return False
    for (_, old), (_, new) in zip(control.frames, candidate.frames, strict=True):
        if old != new:
            return False
    return _answers(control) == _answers(candidate)


def _answers(glance: Glance) -> list[object]:
    """List the entries that answered; a call that asked something else equals no other."""
    if not glance.plays and glance.tape != _NOTHING:
        return [object()]
    return [
        play.entry if play.args is None and play.entry is not None else object()
        for play in glance.plays
    ]
