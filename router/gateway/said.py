"""What an event of a provider says, also where a model's token cut a character in two."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from effects.model.chunks import mend


def said_in(data: bytes) -> dict[str, Any]:
    """Decode an event's data, {} where it is no object; halves stand as `effects.model` has them.

    Strict decoders refuse such an event: nobody may lose what else it says.
    """
    try:
        try:
            said = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            said = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def encoded(answer: dict[str, Any]) -> bytes:
    """Encode what was put together from events; halves that have met are one character again."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return mend(json.dumps(answer, ensure_ascii=False)).encode()
