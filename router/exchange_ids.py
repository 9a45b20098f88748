"""Ids of exchanges: drawn with a tag, so that any process with the key knows which were served."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import fsspec

from effects.files import write_whole

log = logging.getLogger(__name__)

KEY_FILE: Final = "exchange.key"
"""Its name in the folder of the captures; quota and age do not delete it."""
_KEY_BYTES: Final = 32
_DIGITS: Final = 22
_TAG_BYTES: Final = 5
_LOCAL: Final = frozenset({"file", "local"})

new_exchange_id: Callable[[], str] = partial(secrets.token_hex, 16)
"""Returns 32 random hexadecimal digits."""


class ExchangeIds:
    """Draws ids of 32 hexadecimal digits, the last ten a tag of the others.

    `draw` returns as many digits, of which the last ten are replaced. Ids are recognised wherever
    the key is the same; without one, in this object alone.
    """

    def __init__(self, key: bytes = b"", draw: Callable[[], str] = new_exchange_id) -> None:
        self._key = key or secrets.token_bytes(_KEY_BYTES)
        self._draw = draw

    def new(self) -> str:
        """Return a new id."""
        digits = self._draw()[:_DIGITS]
        return digits + self._tag(digits)

    def drawn(self, exchange: str) -> bool:
        """Whether an id was drawn with this key."""
        digits, tag = exchange[:_DIGITS], exchange[_DIGITS:]
        return compare_digest(tag.encode(), self._tag(digits).encode())

    def _tag(self, digits: str) -> str:
        return blake2b(digits.encode(), key=self._key, digest_size=_TAG_BYTES).hexdigest()


def exchange_key(place: str, configured: bytes) -> bytes:
    """Return the key of exchange ids: derived from a configured one, else stored with the captures.

    `place` is the captures' path or fsspec URL. Where the key cannot be stored, ids are known to
    this process alone, and a warning says so.
    """
    if configured:
        return blake2b(configured, digest_size=_KEY_BYTES, person=b"exchange ids").digest()
    drawn = secrets.token_bytes(_KEY_BYTES)
    try:
        system, root = fsspec.core.url_to_fs(place)
        return _stored(system, root, drawn)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        why = type(error).__name__
        log.warning("feedback is taken for exchanges of this process only: no key stored (%s)", why)
        return drawn


def _stored(system: Any, root: str, drawn: bytes) -> bytes:
    """Return the stored key; `drawn` becomes that where there is none, by one process alone."""
    path = f"{root}/{KEY_FILE}"
    try:
        if _LOCAL & {system.protocol, *system.protocol}:
            Path(root).mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), drawn, 0o600, exclusive=True)
        else:
            system.pipe_file(path, drawn, mode="create")
    except FileExistsError:
        drawn = system.cat_file(path, end=_KEY_BYTES)
    if len(drawn) < _KEY_BYTES:
        raise ValueError(path)
    return drawn
