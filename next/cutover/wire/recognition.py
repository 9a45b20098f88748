"""Which dialects a stream may be in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cutover.errors import Completed
from cutover.wire.dialect import Dialect, built_in
from cutover.wire.reader import CONTRADICTION, UNKNOWN, UNREADABLE, Reader
from cutover.wire.splitters import BlockTooLong

_FRAMINGS: Final[Mapping[str, str]] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json-lines": "ndjson",
    "text/plain": "text",
}
_MISREAD: Final = frozenset({UNREADABLE, UNKNOWN, CONTRADICTION})
_LEAST_SHARE: Final = 0.5


def recognise(stream: bytes, media_type: str = "") -> list[Dialect]:
    """Return the dialects that a stream may be in, best first.

    A dialect fits where more than half of the events are what it declares; plain text fits where
    nothing else does, or where the media type says so.
    """
    kind = media_type.partition(";")[0].strip().lower()
    fits: list[tuple[float, bool, int, Dialect]] = []
    for dialect in built_in().values():
        if dialect.framing == "text" or (kind in _FRAMINGS and dialect.framing != _FRAMINGS[kind]):
            continue
        reader = Reader(dialect)
        try:
            frames = reader.feed(stream) + reader.close()
        except BlockTooLong:
            continue
        if any(one.failed and one.failed.code in _MISREAD for one in frames):
            continue
        share = reader.recognised / max(reader.events, 1)
        if share > _LEAST_SHARE:
            length = sum(reader.texts.lengths.values())
            fits.append((share, isinstance(reader.ending, Completed), length, dialect))
    found = [dialect for *_, dialect in sorted(fits, key=lambda one: one[:3], reverse=True)]
    text = built_in()["text"]
    if _FRAMINGS.get(kind) == "text":
        return [text]
    return found if found or kind in _FRAMINGS or not stream else [text]
