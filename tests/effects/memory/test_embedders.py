"""Embedders: one suite for the fake, for an endpoint and for the local model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from effects.memory.embeddings import Embedder, maker
from effects.memory.fake import HashedEmbedder
from effects.memory.local_embeddings import LocalEmbedder
from tests.support.embedding_server import endpoint, hashing


@pytest.fixture(
    params=[
        "hashed",
        pytest.param("endpoint", marks=pytest.mark.sockets),
        pytest.param("local", marks=pytest.mark.slow),
    ]
)
async def embedder(request: pytest.FixtureRequest) -> AsyncIterator[Embedder]:
    """Give an embedder of each kind."""
    match request.param:
        case "hashed":
            yield HashedEmbedder()
        case "endpoint":
            async with endpoint(hashing(256), dimensions=256) as opened:
                yield opened
        case _:
            async with LocalEmbedder.open() as local:
                yield local


async def test_every_text_has_a_vector(embedder: Embedder) -> None:
    """Of 32-bit numbers, as many as it says, of length 1, in the order of the texts."""
    texts = ["喜欢喝绿茶", "has a cat", "x" * 20_000, *(f"number {n}" for n in range(150))]
    vectors = await embedder.embed(texts)
    assert vectors.shape == (len(texts), embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    (alone,) = await embedder.embed([texts[70]])
    assert np.allclose(alone, vectors[70], atol=1e-5)


async def test_no_text_has_no_vector(embedder: Embedder) -> None:
    """Without a request."""
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)


async def test_what_says_nothing_is_no_number_too_many(embedder: Embedder) -> None:
    """Empty and odd texts: numbers all the same."""
    vectors = await embedder.embed(["", " ", "🙂", "\n", "茶"])
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("我喜欢喝什么", "用户喜欢喝绿茶", "住在上海"),
        ("where does she live", "she lives in Oslo", "the cat is black"),
    ],
)
async def test_like_is_near_like(embedder: Embedder, query: str, near: str, far: str) -> None:
    """In Chinese and in English."""
    asked, good, bad = await embedder.embed([query, near, far])
    assert asked @ good > asked @ bad


async def test_the_maker_is_model_and_dimensions(embedder: Embedder) -> None:
    """So that vectors of two are told apart."""
    assert maker(embedder) == f"{embedder.name}/{embedder.dimensions}"
