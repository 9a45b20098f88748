"""Formats of streams, sans I/O: bytes cut anywhere become blocks, lines or pieces, byte by byte."""

from cutover.wire.ndjson import LineSplitter, payload
from cutover.wire.sse import (
    MOST_BLOCK_BYTES,
    BlockTooLong,
    SseDecoder,
    SseEvent,
    SseSplitter,
    comment,
    events,
    is_comment,
)
from cutover.wire.text import TextSplitter

__all__ = [
    "MOST_BLOCK_BYTES",
    "BlockTooLong",
    "LineSplitter",
    "SseDecoder",
    "SseEvent",
    "SseSplitter",
    "TextSplitter",
    "comment",
    "events",
    "is_comment",
    "payload",
]
