"""Encryption of pauses by AES-256-GCM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

from contract.errors import MissingExtra
from effects.stores.pauses.encryption import ENCRYPTED, unreadable

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="AesEncryption", extra="sealed") from missing

_KEY_NAME_BYTES = 8
_NONCE = 12
_NOTHING = frozenset({b"", b"null"})


class AesEncryption:
    """Encrypts with the first of its keys and decrypts with all; rotation puts a new one in front.

    Encrypted bytes are a mark, the key's name, a random nonce, ciphertext and tag. `strict` refuses
    what was stored before there was a key, but nothing empty.
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
        return ENCRYPTED + self._first + nonce + sealed

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Decrypt; faults `pause_sealed` with `wrong_key`, `damaged` and, if strict, `plain`."""
        if not stored.startswith(ENCRYPTED):
            if self._strict and stored not in _NOTHING:
                raise unreadable(why="plain")
            return stored
        name, nonce, sealed = _parts(stored)
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise unreadable(why="wrong_key")
        try:
            return cipher.decrypt(nonce, sealed, _bound(hitl_id, column))
        except (InvalidTag, ValueError) as failure:
            raise unreadable(why="damaged") from failure


def _parts(stored: bytes) -> tuple[bytes, bytes, bytes]:
    name, nonce = len(ENCRYPTED) + _KEY_NAME_BYTES, len(ENCRYPTED) + _KEY_NAME_BYTES + _NONCE
    return stored[len(ENCRYPTED) : name], stored[name:nonce], stored[nonce:]


def _bound(hitl_id: str, column: str) -> bytes:
    """What encrypted bytes are bound to; neither an id nor a column holds a NUL."""
    return f"{hitl_id}\0{column}".encode()


def _name(key: bytes) -> bytes:
    """Name a key by what reveals nothing of it."""
    return sha256(b"cutover pauses\0" + key).digest()[:_KEY_NAME_BYTES]
