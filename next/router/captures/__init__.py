"""Captures: a line a run, a file a batch, redacted before it is stored."""

from router.captures.forget import Forgotten, forget
from router.captures.kinds import PatternRefused
from router.captures.reader import Reader
from router.captures.redaction import PathRefused, Redactor
from router.captures.store import Store
from router.captures.writer import Captures

__all__ = [
    "Captures",
    "Forgotten",
    "PathRefused",
    "PatternRefused",
    "Reader",
    "Redactor",
    "Store",
    "forget",
]
