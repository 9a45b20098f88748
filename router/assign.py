"""Which stack serves: the kill switch, forced keys, who asks for one, a pin, a salted hash."""

from hashlib import blake2b
from typing import Literal

import msgspec

StackName = Literal["legacy", "graph"]

BUCKETS = 100_000
"""Shares are integer thousandths of a percent."""
_SEPARATOR = "\x1f"


class Shares(msgspec.Struct, frozen=True):
    """What decides: the switch, the percentage of route keys that graph serves, forced keys."""

    enabled: bool = False
    percent: float = 0.0
    salt: str = ""
    force_legacy: frozenset[str] = frozenset()
    force_graph: frozenset[str] = frozenset()


class Assignment(msgspec.Struct, frozen=True):
    """The stack a request is assigned to, by its `bucket` (0 to 99 999), and why."""

    stack: StackName
    bucket: int
    why: Literal["off", "forced", "asked", "pinned", "percent"]


def bucket(salt: str, key: str) -> int:
    """Return the bucket of a key, 0 to 99 999, equal on every host and in every version.

    The first 8 bytes of the 64-byte BLAKE2b of `salt 0x1f key` in UTF-8, big-endian, times
    100 000, shifted right by 64. Raising a share moves no key out of graph.
    """
    digest = blake2b(f"{salt}{_SEPARATOR}{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") * BUCKETS >> 64


def thousandths(percent: float) -> int:
    """Return a percentage as integer thousandths, 0 to 100 000."""
    return min(max(round(percent * 1000), 0), BUCKETS)


def assign(
    shares: Shares, key: str, *, asked: StackName | None = None, pinned: StackName | None = None
) -> Assignment:
    """Assign a route key: off means legacy for every key at once, pins included.

    `asked` is what a tester's request asks for, `pinned` what its conversation began with.
    """
    place = bucket(shares.salt, key)
    if not shares.enabled:
        return Assignment("legacy", place, "off")
    if key in shares.force_legacy:
        return Assignment("legacy", place, "forced")
    if key in shares.force_graph:
        return Assignment("graph", place, "forced")
    if asked is not None:
        return Assignment(asked, place, "asked")
    if pinned is not None:
        return Assignment(pinned, place, "pinned")
    chosen: StackName = "graph" if place < thousandths(shares.percent) else "legacy"
    return Assignment(chosen, place, "percent")


def drawn(what: str, salt: str, key: str, percent: float) -> bool:
    """Whether a key is in a share of its own, such as what is mirrored."""
    return bucket(f"{salt}{_SEPARATOR}{what}", key) < thousandths(percent)
