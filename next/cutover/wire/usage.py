"""What an answer of a model cost: the tokens that its provider counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens read and written; None where the provider counts none."""

    input: int | None = None
    output: int | None = None


def usage(items: Iterable[bytes]) -> TokenUsage:
    """Return the tokens of an answer, by its events or its body; the last count is the whole.

    Names are those of chat completions, and of Anthropic's and OpenAI's younger API.
    """
    read = written = None
    for item in reversed([one for one in items if b'"usage' in one]):
        for counts in _counts(item):
            asked = counts.get("input_tokens") or counts.get("prompt_tokens")
            if read is None and asked is not None:  # Anthropic counts the cache apart
                cached = counts.get("cache_creation_input_tokens") or 0
                read = asked + cached + (counts.get("cache_read_input_tokens") or 0)
            said = counts.get("output_tokens") or counts.get("completion_tokens")
            written = said if written is None else written
        if read is not None and written is not None:
            break
    return TokenUsage(read, written)


def _counts(item: bytes) -> list[dict[str, int | None]]:
    lines = [line[5:] for line in item.splitlines() if line.startswith(b"data:")]
    found = []
    for raw in lines or [item]:
        answer = _object(raw)
        for holder in (answer, answer.get("response"), answer.get("message")):
            counts = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(counts, dict):
                whole = {k: v for k, v in counts.items() if v is None or type(v) is int}
                found.append(whole)
    return found


def asked_model(canonical: bytes) -> str:
    """Return the model that a request in normal form asks for, "" where it names none."""
    model = _object(canonical).get("model")
    return model if isinstance(model, str) else ""


def _object(raw: bytes) -> dict[str, Any]:
    """Return the object in JSON, an empty one where there is none."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
