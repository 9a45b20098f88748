"""Encryption of pauses: what a human is asked and answers, and the tape, are unreadable at rest."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Literal, Protocol

from contract.errors import CutoverError, EffectFailed, Fault

ENCRYPTED = b"cutover\x01"
"""How encrypted bytes begin; plain ones never do, they are JSON."""

KEY_BYTES = 32
Why = Literal["no_key", "wrong_key", "damaged", "plain"]


class InvalidKeys(CutoverError):
    """A variable holds no usable keys; the error shows none of it."""

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"the keys in {variable!r} cannot be used: {why}")


class Encryption(Protocol):
    """Encrypts columns of pauses; encrypted bytes are bound to their row and column."""

    def seal(self, plain: bytes, hitl_id: str, column: str) -> bytes:
        """Encrypt."""
        ...

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Decrypt; fault `pause_sealed` where that cannot be."""
        ...


class Plaintext:
    """Without a key: nothing is encrypted, and what was cannot be read."""

    def seal(self, plain: bytes, hitl_id: str, column: str) -> bytes:
        """Return the bytes as they are."""
        return plain

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Return plain bytes; fault `pause_sealed` with `no_key` for encrypted ones."""
        if stored.startswith(ENCRYPTED):
            raise unreadable(why="no_key")
        return stored


def unreadable(why: Why) -> EffectFailed:
    """Return the fault of bytes that cannot be decrypted, or should have been encrypted."""
    return EffectFailed(Fault("pause_sealed", data={"reason": why}))


def read_keys(text: str, variable: str) -> tuple[bytes, ...]:
    """Read keys in base64, separated by commas: the first encrypts, all decrypt.

    Raises `InvalidKeys`.
    """
    keys = [one.strip() for one in text.split(",") if one.strip()]
    if not keys:
        raise InvalidKeys(variable, "it is not set, or empty")
    return tuple(_key(one, number, variable) for number, one in enumerate(keys, 1))


def _key(text: str, number: int, variable: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKeys(variable, f"number {number} is not base64") from None
    if len(key) != KEY_BYTES:
        raise InvalidKeys(variable, f"number {number} has {len(key)} bytes, {KEY_BYTES} are due")
    return key
