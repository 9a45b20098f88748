"""Formats of streams, sans I/O: bytes cut anywhere become blocks, lines, pieces and readings."""

from cutover.wire.dialect import Dialect, DialectRefused, built_in, find_dialect, read_dialect
from cutover.wire.framing import AnswerHead, End, Piece, ServiceFraming, WholeBody
from cutover.wire.ndjson import LineSplitter, payload
from cutover.wire.reader import Reader, splitter
from cutover.wire.recognise import recognise
from cutover.wire.sse import (
    MOST_BLOCK_BYTES,
    BlockTooLong,
    SseEvent,
    SseSplitter,
    comment,
    events,
    is_comment,
)
from cutover.wire.text import TextSplitter
from cutover.wire.usage import TokenUsage, asked_model, usage

__all__ = [
    "MOST_BLOCK_BYTES",
    "AnswerHead",
    "BlockTooLong",
    "Dialect",
    "DialectRefused",
    "End",
    "LineSplitter",
    "Piece",
    "Reader",
    "ServiceFraming",
    "SseEvent",
    "SseSplitter",
    "TextSplitter",
    "TokenUsage",
    "WholeBody",
    "asked_model",
    "built_in",
    "comment",
    "events",
    "find_dialect",
    "is_comment",
    "payload",
    "read_dialect",
    "recognise",
    "splitter",
    "usage",
]
