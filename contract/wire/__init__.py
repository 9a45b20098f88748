"""Reading events off a wire, without I/O: what a dialect declares, one reader obeys.

`WireReader` reads a stream, `FrameReader` and `FrameSplitter` the frames of one that is passed on.
`sse`, `ndjson` and `paths` are imported by their own names.
"""

from contract.wire.dialect import (
    EVERY,
    Dialect,
    ErrorPaths,
    EventNames,
    FailureFrame,
    Framing,
    GrammarTable,
    Growth,
    Kind,
    Paths,
    RecordedWire,
    StepTable,
    TextPaths,
    TextTable,
    ToolPaths,
    Wire,
    built_in,
    choices_of,
    dialect_in,
    dialect_of,
)
from contract.wire.frames import (
    MAX_FRAME_BYTES,
    FrameReader,
    FrameSplitter,
    FrameTooLarge,
    frame_of,
)
from contract.wire.reader import (
    NO_JSON,
    EventDecoder,
    Place,
    TextPlace,
    WireEvent,
    WireReader,
    value_at,
)

__all__ = [
    "EVERY",
    "MAX_FRAME_BYTES",
    "NO_JSON",
    "Dialect",
    "ErrorPaths",
    "EventDecoder",
    "EventNames",
    "FailureFrame",
    "FrameReader",
    "FrameSplitter",
    "FrameTooLarge",
    "Framing",
    "GrammarTable",
    "Growth",
    "Kind",
    "Paths",
    "Place",
    "RecordedWire",
    "StepTable",
    "TextPaths",
    "TextPlace",
    "TextTable",
    "ToolPaths",
    "Wire",
    "WireEvent",
    "WireReader",
    "built_in",
    "choices_of",
    "dialect_in",
    "dialect_of",
    "frame_of",
    "value_at",
]
