"""Embeddings without a model: texts that share words have vectors that point the same way.

Each word, ideograph and pair of neighbouring ideographs is hashed to a few signed places (feature
hashing, Weinberger et al. 2009); vectors have length one.
"""

import math
import re
from array import array
from base64 import b64encode
from hashlib import blake2b
from typing import Any

import msgspec

DIMENSIONS = 64
_FEATURE = re.compile(r"[A-Za-z\u00c0-\u024f']+|\d+|(?=([\u3400-\u9fff]{2}))?[\u3400-\u9fff]")
_PLACES = 4


def embed_text(text: str) -> list[float]:
    """Return the vector of a text, of length one."""
    values = [0.0] * DIMENSIONS
    found = [feature for hit in _FEATURE.finditer(text.lower()) for feature in (hit[0], hit[1])]
    for feature in filter(None, found):
        digest = blake2b(feature.encode(), digest_size=4 * _PLACES).digest()
        for place in memoryview(digest).cast("I"):
            values[(place >> 1) % DIMENSIONS] += 1.0 if place & 1 else -1.0
    length = math.hypot(*values)
    return [value / length for value in values] if length else [1.0] + [0.0] * (DIMENSIONS - 1)


def answer_embeddings(raw: bytes) -> bytes:
    """Return the body that answers a request for embeddings, as floats or as base64.

    Raises ValueError, KeyError, TypeError or AttributeError where the body is no such request.
    """
    body: dict[str, Any] = msgspec.json.decode(raw)
    given = body["input"]
    texts = [str(one) for one in given] if isinstance(given, list) else [given]
    vectors = [embed_text(text) for text in texts]
    packed = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": k,
            "embedding": b64encode(array("f", one).tobytes()).decode() if packed else one,
        }
        for k, one in enumerate(vectors)
    ]
    tokens = sum(len(_FEATURE.findall(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode(
        {"object": "list", "data": data, "model": body.get("model"), "usage": usage}
    )
