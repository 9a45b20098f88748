"""Choices drawn from a request's digest: the same request always draws the same."""

from collections.abc import Sequence
from hashlib import blake2b, shake_128
from typing import TypeVar

Item = TypeVar("Item")


def draw(digest: bytes, label: str, below: int) -> int:
    """Draw one of `0 … below - 1`; `label` keeps independent choices independent."""
    return int.from_bytes(blake2b(digest + label.encode(), digest_size=8).digest(), "big") % below


def pick(digest: bytes, label: str, options: Sequence[Item]) -> Item:
    """Draw one of the options."""
    return options[draw(digest, label, len(options))]


def shuffled(digest: bytes, label: str, options: Sequence[Item]) -> list[Item]:
    """Put all options into a drawn order."""
    keys = stream(digest, label, len(options))
    return [options[place] for place in sorted(range(len(options)), key=keys.__getitem__)]


def stream(digest: bytes, label: str, count: int) -> list[int]:
    """Draw `count` numbers of 16 bits."""
    raw = shake_128(digest + label.encode()).digest(2 * count)
    return [int.from_bytes(raw[place : place + 2], "big") for place in range(0, 2 * count, 2)]


def name(digest: bytes, label: str, length: int) -> str:
    """Draw an identifier of at most 40 hexadecimal digits."""
    return blake2b(digest + label.encode(), digest_size=20).hexdigest()[:length]
