"""What an answer of a model cost: the tokens that its provider counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Tokens read and written; None where the provider counts none."""

    input: int | None = None
    output: int | None = None


class _Counts(msgspec.Struct):
    """The counts of chat completions, and those of Anthropic's and OpenAI's younger API."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None  # Anthropic counts the cache apart
    cache_read_input_tokens: int | None = None


class _Holder(msgspec.Struct):
    usage: _Counts | None = None


class _Answer(_Holder):
    response: _Holder | None = None
    message: Any = None


class _Asked(msgspec.Struct):
    model: str = ""


def usage(items: Iterable[bytes]) -> Usage:
    """Return the tokens of an answer, by its events or its body; the last count is the whole."""
    read = written = None
    for item in reversed([one for one in items if b'"usage' in one]):
        for counts in _counts(item):
            if read is None and (asked := counts.input_tokens or counts.prompt_tokens) is not None:
                cached = counts.cache_creation_input_tokens or 0
                read = asked + cached + (counts.cache_read_input_tokens or 0)
            said = counts.output_tokens or counts.completion_tokens
            written = said if written is None else written
        if read is not None and written is not None:
            break
    return Usage(read, written)


def _counts(item: bytes) -> list[_Counts]:
    lines = [line[5:] for line in item.splitlines() if line.startswith(b"data:")]
    found = []
    for raw in lines or [item]:
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
            message = answer.message if isinstance(answer.message, dict) else {}
            inner = msgspec.convert({"usage": message.get("usage")}, _Holder)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        found += [one.usage for one in (answer, answer.response, inner) if one and one.usage]
    return found


def asked_model(canonical: bytes) -> str:
    """Return the model that a request in normal form asks for, "" where it names none."""
    try:
        return msgspec.json.decode(canonical, type=_Asked).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
