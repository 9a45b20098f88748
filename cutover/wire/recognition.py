"""Which dialects a stream may be in."""

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
    framing = _FRAMINGS.get(media_type.partition(";")[0].strip().lower(), "")
    fits: list[tuple[float, bool, int, Dialect]] = []
    for dialect in built_in().values():
        if dialect.framing == "text" or framing not in {"", dialect.framing}:
            continue
        reader = Reader(dialect)
        try:
            frames = reader.feed(stream) + reader.close()
        except BlockTooLong:
            continue
        share = reader.recognised / max(reader.events, 1)
        misread = any(one.failed and one.failed.code in _MISREAD for one in frames)
        if share > _LEAST_SHARE and not misread:
            length = sum(reader.texts.lengths.values())
            fits.append((share, isinstance(reader.ending, Completed), length, dialect))
    fits.sort(key=lambda one: one[:3], reverse=True)
    if framing == "text" or (not fits and not framing and stream):
        return [built_in()["text"]]
    return [dialect for *_, dialect in fits]
