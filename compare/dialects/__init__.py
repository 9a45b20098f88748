"""Dialects: streams of any wire, read into one normal form."""

from compare.dialects.normal import NormalStream, TimesAstray
from compare.dialects.reading import Spoken, spoken

__all__ = ["NormalStream", "Spoken", "TimesAstray", "spoken"]
