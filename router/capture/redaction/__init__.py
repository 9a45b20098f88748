"""Redaction: personal data is replaced before anything is stored. Pure."""

from router.capture.redaction.dictionary import (
    PSEUDONYM,
    digest,
)
from router.capture.redaction.exchange import (
    Redactor,
)

__all__ = ["PSEUDONYM", "Redactor", "digest"]
