"""Imports: what an old application holds, brought into the stores as turns and memories."""

from cutover.imports.intake import (
    ImportTally,
    Put,
    lasting_store,
    open_memories,
    open_nothing,
    open_turns,
    redaction,
    take_in,
)
from cutover.imports.shapes import (
    THREAD_FIELDS,
    Place,
    Shaped,
    Value,
    entries_of_rows,
    mapped,
    turns_of_rows,
    turns_of_threads,
)
from cutover.imports.source import Rows, open_rows

__all__ = [
    "THREAD_FIELDS",
    "ImportTally",
    "Place",
    "Put",
    "Rows",
    "Shaped",
    "Value",
    "entries_of_rows",
    "lasting_store",
    "mapped",
    "open_memories",
    "open_nothing",
    "open_rows",
    "open_turns",
    "redaction",
    "take_in",
    "turns_of_rows",
    "turns_of_threads",
]
