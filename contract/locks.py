"""Locks, clock and ids: the small effects."""

from __future__ import annotations

import msgspec


class Acquire(msgspec.Struct, frozen=True):
    """Arguments of `locks.acquire`; `ttl` in seconds, renewed by the adapter while held."""

    key: str
    ttl: float


class Acquired(msgspec.Struct, frozen=True):
    """Result of `locks.acquire`; False when another owner holds it."""

    held: bool


class Release(msgspec.Struct, frozen=True):
    """Arguments of `locks.release`."""

    key: str


class Released(msgspec.Struct, frozen=True):
    """Result of `locks.release`: noted; the exchange lets go of the lock when it ends."""


class Moment(msgspec.Struct, frozen=True):
    """Result of `clock.now`: microseconds since the Unix epoch, UTC."""

    us: int


class NewId(msgspec.Struct, frozen=True):
    """Result of `ids.new`."""

    id: str
