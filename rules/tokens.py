"""Token counts where no tokenizer is at hand: an estimate, and marked as one."""

from __future__ import annotations

_ASCII_PER_TOKEN = 4


def estimate(text: str) -> int:
    """Estimate tokens: four ASCII characters a token, any other character a token of its own."""
    if text.isascii():
        return -(-len(text) // _ASCII_PER_TOKEN)
    ascii_count = len(text.encode("ascii", "ignore"))
    return len(text) - ascii_count - (-ascii_count // _ASCII_PER_TOKEN)
