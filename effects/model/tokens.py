"""Exact token counts, where the tokenizer of a model is at hand.

Its library comes with an extra and carries the encodings: nothing is fetched at run time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

log = logging.getLogger(__name__)

MOST_CHARACTERS: Final = 1 << 19
"""Characters of all texts beyond which no exact count is made: it would take half a second."""
AT_ONCE: Final = 4_096
"""Characters that are counted on the spot, within a millisecond; more are counted in a thread."""

_LIBRARY: Final = "splintr"
_MOST_CACHED: Final = 512
"""Texts a tokenizer may cache with their tokens."""

_tokenizers: dict[str, Any] = {}
"""Those of this process by encoding, loaded when first used; None without the extra."""

_ENCODINGS: Final = (
    ("o200k_base", re.compile(r"(ft:)?(gpt-4o|gpt-4\.[15]|gpt-5|chatgpt-4o|o[134](?![a-z0-9]))")),
    ("cl100k_base", re.compile(r"(ft:)?(gpt-4(?![a-z0-9.])|gpt-3\.5|gpt-35)")),
)


def encoding_of(model: str) -> str | None:
    """Return the encoding of a model by the provider's name for it; None where it is unknown."""
    name = model.rpartition("/")[2]  # gateways name the maker before it
    return next((encoding for encoding, names in _ENCODINGS if names.match(name)), None)


def tokenizers_installed() -> bool:
    """Whether the extra is there."""
    return find_spec(_LIBRARY) is not None


async def count_tokens(model: str, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    """Count the tokens of each text; None without the model's tokenizer, or of too much.

    A tokenizer is loaded in a thread when it is first used.
    """
    encoding, characters = encoding_of(model), sum(map(len, texts))
    if encoding is None or characters > MOST_CHARACTERS:
        return None
    if encoding not in _tokenizers:
        _tokenizers[encoding] = await asyncio.to_thread(_load, encoding)
    tokenizer = _tokenizers[encoding]
    if tokenizer is None:
        return None
    if characters <= AT_ONCE:
        return _counts(tokenizer, texts)
    return await asyncio.to_thread(_counts, tokenizer, texts)


def _counts(tokenizer: Any, texts: tuple[str, ...]) -> tuple[int, ...] | None:
    encode: Callable[[str], list[int]] = tokenizer.encode_ordinary
    try:
        return tuple(len(encode(text)) for text in texts)
    except UnicodeEncodeError:  # half a character: no tokenizer has a count for that
        return None
    finally:
        if tokenizer.cache_len > _MOST_CACHED:
            tokenizer.clear_cache()  # it caches every text it has seen


def _load(encoding: str) -> Any | None:
    """Load a tokenizer; None without the extra."""
    try:
        library = import_module(_LIBRARY)
    except ImportError:
        log.info("tokens are estimated: the extra 'tokens' is not installed")
        return None
    tokenizer = library.Tokenizer.from_pretrained(encoding)
    tokenizer.encode_ordinary("begin 开始")  # what the first call sets up takes a third of a second
    return tokenizer
