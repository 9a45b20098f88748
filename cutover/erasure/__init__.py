"""Erasure of a data subject: exchanges from captures, rows and threads from the stores."""

from cutover.erasure.captures import (
    ErasedCaptures,
    SubjectMatcher,
    declared_fields,
    erase_captures,
)
from cutover.erasure.stores import (
    ErasedRows,
    ErasedThreads,
    erase_rows,
    erase_set_aside,
    erase_threads,
)

__all__ = [
    "ErasedCaptures",
    "ErasedRows",
    "ErasedThreads",
    "SubjectMatcher",
    "declared_fields",
    "erase_captures",
    "erase_rows",
    "erase_set_aside",
    "erase_threads",
]
