"""The tape of a pause as it is stored: numbered, so that no version guesses at another's."""

from __future__ import annotations

import msgspec

from contract.errors import EffectFailed, Fault
from contract.records import EntryRecord, RequestRecord

VERSION = 2
"""Of the tape of a pause; 1, which had no number, ended in its question."""

_READABLE = frozenset({1, VERSION})


class Suspended(msgspec.Struct, frozen=True):
    """What a pause stores as its tape: the request, and every entry so far.

    The last entry is the unanswered `human.answer`, open, once the flow has come to wait for it.
    One that was continued and broke off holds the answer in its place, and what was done since.
    """

    request: RequestRecord
    entries: tuple[EntryRecord, ...]
    v: int = 1


class _Numbered(msgspec.Struct):
    v: int = 1


_encoder = msgspec.json.Encoder()
_numbered = msgspec.json.Decoder(_Numbered)
_decoder = msgspec.json.Decoder(Suspended)


def write(request: RequestRecord, entries: tuple[EntryRecord, ...]) -> bytes:
    """Encode a tape, in the version of this code."""
    return _encoder.encode(Suspended(request, entries, VERSION))


def read(tape: bytes) -> Suspended:
    """Read the tape of a pause, whole or not at all; fault `pause_outdated`."""
    try:
        version = _numbered.decode(tape).v
        if version in _READABLE:
            return _decoder.decode(tape)
    except msgspec.DecodeError as failure:
        raise outdated(reason="tape") from failure
    raise outdated(version=version, known=VERSION)


def outdated(**data: str | int) -> EffectFailed:
    """Give the fault of a tape that cannot be gone on from."""
    return EffectFailed(Fault("pause_outdated", data={**data}))
