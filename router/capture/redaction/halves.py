"""Halves of characters: texts that were cut between two UTF-16 code units, and their JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from router.capture.redaction.places import (
        Json,
    )


def decoded(text: str) -> Json:
    """Read JSON; raises `ValueError` where it is none, `RecursionError` where it is too deep."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        if "\\u" not in text:
            raise
    return json.loads(text)


def encoded(tree: Json) -> str:
    """Write JSON; only an escape can carry half a character."""
    try:
        return msgspec.json.encode(tree).decode()
    except UnicodeEncodeError:
        return json.dumps(tree, separators=(",", ":"))


def raw(text: str) -> bytes:
    """Give a text's bytes, to be searched."""
    return text.encode("utf-8", "surrogatepass")
