"""Captures: a line a run, a file a batch, redacted before it is stored."""

from router.captures.forget import forget
from router.captures.kinds import PatternRefused
from router.captures.reader import CaptureReader
from router.captures.redaction import PathRefused, Redactor
from router.captures.store import Store
from router.captures.writer import Captures

__all__ = [
    "CaptureReader",
    "Captures",
    "PathRefused",
    "PatternRefused",
    "Redactor",
    "Store",
    "forget",
]
