"""The port of embeddings: below the recorder, for the memory alone; no stack ever sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Vectors: TypeAlias = NDArray[np.float32]
"""Of shape (texts, dimensions); each of length 1, or 0 where a text says nothing."""

Vector: TypeAlias = NDArray[np.float32]
"""Of shape (dimensions,)."""

MOST_OF_A_TEXT = 6_000
"""Characters of a text that count: models refuse more than some 8,000 tokens."""


class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def name(self) -> str:
        """The model."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text, in their order; raises `EffectFailed` with a model fault."""
        ...


def maker(embedder: Embedder) -> str:
    """Say who makes the vectors: those of two makers are never compared."""
    return maker_named(embedder.name, embedder.dimensions)


def maker_named(model: str, dimensions: int) -> str:
    """Name who makes vectors of so many dimensions by a model."""
    return f"{model}/{dimensions}"


def normalised(vectors: Vectors) -> Vectors:
    """Give every vector the length 1; what has none stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
