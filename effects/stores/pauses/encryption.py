"""Sealed pauses: what a human is asked, answers and waits for, unreadable where it is kept."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Literal, Protocol

from contract.errors import CutoverError, EffectFailed, Fault

SEALED = b"cutover\x01"
"""How sealed bytes begin; nothing plain does, for that is JSON."""

KEY_BYTES = 32
Why = Literal["no_key", "wrong_key", "damaged", "plain"]


class InvalidKeys(CutoverError):
    """A variable holds no keys; none is shown."""

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"the keys in {variable!r} cannot be used: {why}")


class Encryption(Protocol):
    """Seals the columns of pauses; what is sealed opens in its own row and column alone."""

    def seal(self, plain: bytes, hitl_id: str, column: str) -> bytes:
        """Make bytes unreadable."""
        ...

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Make bytes readable again; fault `pause_sealed` where that cannot be."""
        ...


class Plaintext:
    """No key is there: what is stored can be read, and what was sealed stays closed."""

    def seal(self, plain: bytes, hitl_id: str, column: str) -> bytes:
        """Leave bytes as they are."""
        return plain

    def open(self, stored: bytes, hitl_id: str, column: str) -> bytes:
        """Give bytes that are not sealed."""
        if stored.startswith(SEALED):
            raise closed(why="no_key")
        return stored


def closed(why: Why) -> EffectFailed:
    """Give the fault of something that does not open, or should have been sealed."""
    return EffectFailed(Fault("pause_sealed", data={"reason": why}))


def read_keys(text: str, variable: str) -> tuple[bytes, ...]:
    """Read keys in base64, separated by commas: the first seals, all open.

    Raises `KeysUnusable`.
    """
    given = [one.strip() for one in text.split(",") if one.strip()]
    if not given:
        raise InvalidKeys(variable, "it is not set, or empty")
    return tuple(_key(one, number, variable) for number, one in enumerate(given, 1))


def _key(text: str, number: int, variable: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKeys(variable, f"number {number} is not base64") from None
    if len(key) != KEY_BYTES:
        raise InvalidKeys(variable, f"number {number} has {len(key)} bytes, {KEY_BYTES} are due")
    return key
