"""Embeddings: the port, an endpoint's, and a fake that needs no model."""

from effects.embeddings.embedder import Embedder, Vector, Vectors, maker, maker_named
from effects.embeddings.endpoint import EndpointEmbedder
from effects.embeddings.hashed import HashedEmbedder

__all__ = [
    "Embedder",
    "EndpointEmbedder",
    "HashedEmbedder",
    "Vector",
    "Vectors",
    "maker",
    "maker_named",
]
