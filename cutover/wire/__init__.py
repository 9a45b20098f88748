"""Formats of streams, sans I/O: bytes cut anywhere become blocks, lines, pieces and readings."""

from cutover.wire.answer import AnswerHead, End, Piece, ServiceFraming, WholeBody
from cutover.wire.dialect import Dialect, DialectRefused, built_in, find_dialect, read_dialect
from cutover.wire.reader import Reader, splitter
from cutover.wire.recognition import recognise
from cutover.wire.splitters import (
    MOST_BLOCK_BYTES,
    BlockTooLong,
    LineSplitter,
    SseEvent,
    SseSplitter,
    TextSplitter,
    comment,
    events,
    payload,
)

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
    "WholeBody",
    "built_in",
    "comment",
    "events",
    "find_dialect",
    "payload",
    "read_dialect",
    "recognise",
    "splitter",
]
