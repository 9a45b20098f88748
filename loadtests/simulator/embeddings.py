"""Embeddings without a model: texts that share words get vectors that point the same way.

Each word and each Chinese character (and pair) is hashed to a few signed places of the vector
(feature hashing, Weinberger et al. 2009), which is then brought to length one.
"""

import math
import re
from array import array
from base64 import b64encode
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec

from loadtests.simulator.request import Refusal, count, read_body

DIMENSIONS = 384
FEATURE = re.compile(r"[A-Za-z\u00c0-\u024f']+|\d+|(?=([\u3400-\u9fff]{2}))?[\u3400-\u9fff]")
PLACES = 4
Size = Annotated[int, msgspec.Meta(ge=1, le=4096)]


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """The body of `POST /v1/embeddings`; tokens instead of texts are taken as they are."""

    model: str
    input: str | list[str | int | list[int]]
    dimensions: Size = DIMENSIONS
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def texts(self) -> list[str]:
        """The texts to embed; a list of numbers is one text."""
        if isinstance(self.input, str):
            return [self.input]
        if self.input and isinstance(self.input[0], int):
            return [str(self.input)]
        return [text if isinstance(text, str) else str(text) for text in self.input]


DECODER = msgspec.json.Decoder(EmbeddingRequest)


def decode(body: bytes) -> EmbeddingRequest | Refusal:
    """Read a request body: 400 for broken JSON or nothing to embed, 422 for a wrong type."""
    request = read_body(DECODER, body)
    if isinstance(request, Refusal):
        return request
    if not request.texts:
        return Refusal(400, "'input' must not be empty.", param="input")
    return request


def embed(request: EmbeddingRequest) -> bytes:
    """Answer a request."""
    vectors = [vector(text, request.dimensions) for text in request.texts]
    data = [
        {"object": "embedding", "index": index, "embedding": _written(values, request)}
        for index, values in enumerate(vectors)
    ]
    tokens = sum(map(count, request.texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    model = request.model.partition("?")[0]
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": usage})


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Embed a text as a vector of length one."""
    values = [0.0] * dimensions
    for feature in _features(text):
        digest = blake2b(feature.encode(), digest_size=4 * PLACES).digest()
        for start in range(0, len(digest), 4):
            drawn = int.from_bytes(digest[start : start + 4], "big")
            values[(drawn >> 1) % dimensions] += 1.0 if drawn & 1 else -1.0
    length = math.hypot(*values)
    if not length:  # hashes that cancel each other out
        return [1.0] + [0.0] * (dimensions - 1)
    return [value / length for value in values]


def _features(text: str) -> list[str]:
    found = [
        feature for hit in FEATURE.finditer(text.lower()) for feature in (hit[0], hit[1]) if feature
    ]
    return found or [text]


def _written(values: list[float], request: EmbeddingRequest) -> list[float] | str:
    if request.encoding_format == "float":
        return values
    return b64encode(array("f", values).tobytes()).decode()
