"""Dialects: any wire, declared in a small file."""

from contract.dialects.file import DialectFile
from contract.dialects.reading import built_in, dialect_in, dialect_of

__all__ = ["DialectFile", "built_in", "dialect_in", "dialect_of"]
