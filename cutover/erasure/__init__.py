"""Erasure of a data subject: exchanges from captures, rows and threads from the stores."""

from cutover.erasure.captures import ErasedCaptures, erase_captures
from cutover.erasure.stores import ErasedRows, ErasedThreads, erase_rows, erase_threads
from cutover.erasure.subject import SubjectMatcher, declared_fields

__all__ = [
    "ErasedCaptures",
    "ErasedRows",
    "ErasedThreads",
    "SubjectMatcher",
    "declared_fields",
    "erase_captures",
    "erase_rows",
    "erase_threads",
]
