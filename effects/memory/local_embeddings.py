"""Embeddings of a small model in this process: no key, no network, nothing to be fetched.

The weights and the tokenizer come in the wheel of `wordllama` (l2_supercat, 256 dimensions). They
are read from there: importing the package itself would set up logging for the whole process.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from contract.errors import MissingExtra
from effects.memory.embeddings import MOST_OF_A_TEXT, Vectors, normalised

try:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="LocalEmbedder", extra="local-embeddings") from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class LocalEmbedder:
    """A text is the mean of its tokens' vectors; made by `LocalEmbedder.open()`."""

    name = "wordllama-l2-supercat"
    size = 256

    def __init__(self, weights: Vectors, tokenizer: Tokenizer, thread: ThreadPoolExecutor) -> None:
        self._weights = weights
        self._tokenizer = tokenizer
        self._thread = thread

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[LocalEmbedder]:
        """Read the model: half a second and 35 MB; raises `MissingExtra`."""
        with ThreadPoolExecutor(1, thread_name_prefix="embeddings") as thread:
            loop = asyncio.get_running_loop()
            yield cls(*await loop.run_in_executor(thread, _load), thread)

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return int(self._weights.shape[1])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Make a vector of each text, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._embed, list(texts))

    def _embed(self, texts: list[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            tokens = self._tokenizer.encode(text[:MOST_OF_A_TEXT], add_special_tokens=False).ids
            if tokens:
                vector[:] = self._weights[tokens].mean(axis=0, dtype=np.float32)
        return normalised(vectors)


def _load() -> tuple[Vectors, Tokenizer]:
    folder = _folder()
    weights = load_file(folder / _WEIGHTS)["embedding.weight"].astype(np.float32)
    return weights, Tokenizer.from_file(str(folder / _TOKENIZER))


def _folder() -> Path:
    found = find_spec("wordllama")
    if found is None or found.origin is None:  # pragma: no cover (as above)
        raise MissingExtra(adapter="LocalEmbedder", extra="local-embeddings")
    return Path(found.origin).parent
