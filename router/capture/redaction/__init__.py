"""Redaction: personal data is replaced by keyed pseudonyms before anything is stored. Pure."""

from router.capture.redaction.dictionary import PSEUDONYM, digest
from router.capture.redaction.redactor import Redactor

__all__ = ["PSEUDONYM", "Redactor", "digest"]
