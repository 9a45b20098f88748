"""What is sent to an endpoint of embeddings, and what it answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from contract.errors import EffectFailed, Fault
from effects.embeddings.embedder import Vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effects.model.failures import Facts


class _Wanted(msgspec.Struct, omit_defaults=True):
    model: str
    input: Sequence[str]
    dimensions: int = 0


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int


class _Answer(msgspec.Struct):
    data: list[_Vector]


_answer = msgspec.json.Decoder(_Answer)


def encode(model: str, texts: Sequence[str], dimensions: int = 0) -> bytes:
    """Write a request; with `dimensions` the endpoint is asked for shorter vectors."""
    return msgspec.json.encode(_Wanted(model, texts, dimensions))


def decode(body: bytes, texts: int, dimensions: int) -> Vectors:
    """Read the vectors of so many texts, in the order of the texts.

    Raises `EffectFailed` (`model_error`) where the answer is anything else.
    """
    try:
        found = sorted(_answer.decode(body).data, key=lambda one: one.index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EffectFailed(_unusable("no embeddings")) from error
    if [one.index for one in found] != list(range(texts)):
        raise EffectFailed(_unusable("indices", vectors=len(found), texts=texts))
    if other := next((one for one in found if len(one.embedding) != dimensions), None):
        raise EffectFailed(
            _unusable("dimensions", sent=len(other.embedding), configured=dimensions)
        )
    # Beyond what 32 bits can hold is infinite, and refused here.
    with np.errstate(over="ignore"):
        vectors = np.array([one.embedding for one in found], np.float32)
    if not np.isfinite(vectors).all():
        raise EffectFailed(_unusable("numbers"))
    return vectors.reshape(texts, dimensions)


def _unusable(reason: str, **facts: int) -> Fault:
    data: Facts = {"reason": reason, **facts}
    return Fault("model_error", data=data)
