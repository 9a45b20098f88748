"""Embeddings without a model: texts are near where they share pieces of words."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from effects.embeddings.embedder import MOST_OF_A_TEXT, Vectors, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WORDS = re.compile(r"[^\W_]+")
_PIECES = (2, 3)


class HashedEmbedder:
    """The fake of the port: pieces of two and three characters, counted by their hashes.

    Of words that are not ASCII single characters count, too. The same on every machine.
    """

    def __init__(self, dimensions: int = 1_024, name: str = "hashed") -> None:
        self.name = name
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text."""
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for piece in _pieces(text[:MOST_OF_A_TEXT]):
                vector[crc32(piece.encode()) % self.dimensions] += 1
        return normalised(vectors)


def _pieces(text: str) -> Iterator[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    for word in _WORDS.findall(plain):
        padded = f" {word} "
        for size in _PIECES:
            yield from (padded[at : at + size] for at in range(len(padded) - size + 1))
        if not word.isascii():
            yield from word
