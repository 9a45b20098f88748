"""Pauses sealed by AES-256-GCM."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from effects.extras import MissingExtra
from effects.stores.pauses.encryption import SEALED, closed

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="AesSeals", extra="sealed") from missing

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY_NAME_BYTES = 8
_NONCE = 12
_NOTHING = frozenset({b"", b"null"})


class AesEncryption:
    """Seals with the first of its keys and opens with all; rotation is a new key in front.

    Sealed bytes are a mark, the key's name, a random nonce, ciphertext and tag. `strict` refuses
    what was stored before there was a key; what is empty says nothing and is never refused.
    """

    def __init__(self, keys: Sequence[bytes], *, strict: bool = False) -> None:
        self._ciphers = {_name(key): AESGCM(key) for key in keys}
        self._first = _name(keys[0])
        self._strict = strict

    def seal(self, plain: bytes, hitl_id: str, column: str) -> bytes:
        """Encrypt; what is empty stays so."""
        if plain in _NOTHING:
            return plain
        nonce = os.urandom(_NONCE)
        sealed = self._ciphers[self._first].encrypt(nonce, plain, _bound(hitl_id, column))
        return SEALED + self._first + nonce + sealed

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Decrypt; faults `pause_sealed` with `wrong_key`, `damaged` and, if strict, `plain`."""
        if not stored.startswith(SEALED):
            if self._strict and stored not in _NOTHING:
                raise closed(why="plain")
            return stored
        name, nonce, sealed = _parts(stored)
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise closed(why="wrong_key")
        try:
            return cipher.decrypt(nonce, sealed, _bound(hitl_id, column))
        except (InvalidTag, ValueError) as failure:
            raise closed(why="damaged") from failure


def _parts(stored: bytes) -> tuple[bytes, bytes, bytes]:
    name, nonce = len(SEALED) + _KEY_NAME_BYTES, len(SEALED) + _KEY_NAME_BYTES + _NONCE
    return stored[len(SEALED) : name], stored[name:nonce], stored[nonce:]


def _bound(hitl_id: str, column: str) -> bytes:
    """What sealed bytes are bound to: no column holds a NUL, no id does either."""
    return f"{hitl_id}\0{column}".encode()


def _name(key: bytes) -> bytes:
    """Name a key without telling anything of it."""
    return sha256(b"cutover pauses\0" + key).digest()[:_KEY_NAME_BYTES]
