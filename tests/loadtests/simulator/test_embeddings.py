"""Embeddings: unit vectors that follow from the text."""

import math
from array import array
from base64 import b64decode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator.embeddings import EmbeddingRequest, decode, embed, vector
from loadtests.simulator.request import Refusal


def similarity(one: str, other: str) -> float:
    """Cosine of two texts."""
    return sum(a * b for a, b in zip(vector(one), vector(other), strict=True))


@given(st.text(), st.integers(1, 400))
def test_vectors_have_length_one(text: str, dimensions: int) -> None:
    """Any text, any number of dimensions."""
    assert math.isclose(math.hypot(*vector(text, dimensions)), 1.0)
    assert vector(text, dimensions) == vector(text, dimensions)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("the cat sleeps on the sofa", "the cat sleeps outside", "quarterly revenue report"),
        ("我的猫喜欢睡在沙发上", "猫睡在沙发上", "季度收入报告"),
    ],
)
def test_shared_words_mean_nearness(text: str, near: str, far: str) -> None:
    """So that searching a memory finds something sensible."""
    assert similarity(text, near) > 0.4 > similarity(text, far)


def test_both_encodings_hold_the_same() -> None:
    """Base64 is the same vector in 32-bit floats."""
    floats = msgspec.json.decode(embed(EmbeddingRequest("sim-embed", ["hi", "there"])))
    coded = msgspec.json.decode(
        embed(EmbeddingRequest("sim-embed", "hi", encoding_format="base64"))
    )
    raw = b64decode(coded["data"][0]["embedding"])
    assert array("f", raw) == array("f", floats["data"][0]["embedding"])
    assert len(floats["data"][1]["embedding"]) == 384
    assert floats["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b'{"model":"m","input":[]}', 400), (b'{"model":"m","input":3}', 422)],
)
def test_bad_bodies_are_refused(body: bytes, status: int) -> None:
    """As for chats."""
    refusal = decode(body)
    assert isinstance(refusal, Refusal)
    assert refusal.status == status


def test_tokens_may_stand_for_texts() -> None:
    """One list of numbers is one text, a list of lists several."""
    one = decode(b'{"model":"m","input":[1,2]}')
    two = decode(b'{"model":"m","input":[[1],[2]]}')
    assert isinstance(one, EmbeddingRequest)
    assert isinstance(two, EmbeddingRequest)
    assert (one.texts, two.texts) == (["[1, 2]"], ["[1]", "[2]"])
