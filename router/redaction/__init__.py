"""Redaction: personal data is replaced before anything is stored. Pure."""

from router.redaction.dictionary import PSEUDONYM, digest
from router.redaction.exchange import Redactor

__all__ = ["PSEUDONYM", "Redactor", "digest"]
