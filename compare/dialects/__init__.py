"""Dialects: any wire, declared in a small file, read into one normal form."""

from compare.dialects.normal import NormalStream, TimesAstray
from compare.dialects.reading import Spoken, built_in, spoken

__all__ = ["NormalStream", "Spoken", "TimesAstray", "built_in", "spoken"]
