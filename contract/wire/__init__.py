"""Reading events off a wire, without I/O: what a dialect declares, one reader obeys.

`WireReader` reads a stream, `FrameReader` and `FrameSplitter` the frames of one that is passed on.
"""

from contract.wire.dialect import Dialect, RecordedWire, Wire, built_in, dialect_in, dialect_of
from contract.wire.frames import FrameReader, FrameSplitter, FrameTooLarge, splitter_of
from contract.wire.reader import EventDecoder, TextPlace, WireEvent, WireReader

__all__ = [
    "Dialect",
    "EventDecoder",
    "FrameReader",
    "FrameSplitter",
    "FrameTooLarge",
    "RecordedWire",
    "TextPlace",
    "Wire",
    "WireEvent",
    "WireReader",
    "built_in",
    "dialect_in",
    "dialect_of",
    "splitter_of",
]
