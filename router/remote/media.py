"""What an answer calls itself: a page is no stream, and nobody's client is given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, assert_never

if TYPE_CHECKING:
    from collections.abc import Collection

_EITHER: Final = frozenset({"", "text/plain", "application/octet-stream"})
"""Says nothing of what is in it: so are streams called whose makers did not think of it."""


def media_type(header: bytes) -> str:
    """Give the media type of a `content-type`, without parameters, in lower case."""
    return header.partition(b";")[0].strip().lower().decode("latin-1")


def streams(
    framing: Literal["sse", "ndjson"], kind: str, also: Collection[str] = frozenset()
) -> bool:
    """Whether what calls itself of a media type may be a stream of a framing; `also` may be."""
    if kind in _EITHER or kind in also:
        return True
    match framing:
        case "sse":
            return kind == "text/event-stream"
        case "ndjson":
            # x-ndjson, jsonl, jsonlines, stream+json, or simply json: there is no registered one.
            return "json" in kind and kind != "application/problem+json"
        case _:
            assert_never(framing)
