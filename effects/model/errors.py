"""Errors of providers as faults: a status, an error in a stream, a broken connection."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from contract.errors import Fault
from effects.model.shapes import BUSY, ERRORS, OF_THE_REQUEST, ErrorShape

Facts = dict[str, str | int | float | bool | None]

_WORD: Final = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_NAMES: Final = ("code", "type", "status", "error_type")


def status_fault(
    status: int, headers: Mapping[str, str], error: object, now: datetime | None = None
) -> Fault:
    """Name the fault of an error response; `error` is what `error_in` found in its body.

    `now` is when it came, for a date to wait until where the response has no date of its own.

    `data` may hold `status`, the provider's `code` and `type`, `request_id`, and `retry_after` in
    seconds. The provider's sentence is read but never stored: it may quote prompts and keys.
    """
    facts: Facts = {"status": status, **_facts(error)}
    if request_id := _word(headers.get("x-request-id")):
        facts["request_id"] = request_id
    if (seconds := retry_after(headers, now)) is not None:
        facts["retry_after"] = seconds
    shape = _shape_of(status, _words(error), error)
    if shape is None:
        return Fault("model_bad_request", data=facts)
    return Fault(shape.fault, shape.retryable, facts)


def error_in(body: bytes) -> object:
    """Return the error of a response's body or an event's data: an object, or text.

    It stands under `error`, in a list (Gemini), or is all there is; a text under `error` becomes
    the `message` among the fields beside it (TGI, xAI).
    """
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return value
    error = value.get("error", value)
    return {**value, "message": error} if isinstance(error, str) else error


def is_error(data: bytes) -> bool:
    """Whether an event without choices is an error that no field `error` holds."""
    value = error_in(data)
    return isinstance(value, dict) and "error" in (value.get("object"), value.get("type"))


def in_band_fault(error: object) -> Fault:
    """Name the fault of an error that came inside a stream of status 200."""
    facts = _facts(error)
    words = _words(error)
    status = _status_in(facts.get("code"))
    shape = _shape_of(status, words, error)
    if shape is not None and shape.fault in OF_THE_REQUEST:
        return Fault(shape.fault, data=facts)
    busy = shape is not None and shape.retryable if status else not words.isdisjoint(BUSY)
    return Fault("model_error", busy, facts)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds a provider asks to wait: RFC 9110, 10.2.3, and OpenAI's milliseconds.

    A date counts from the response's own `Date`, else from `now`.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    requested = headers.get("retry-after")
    if requested is None:
        return None
    seconds = _number(requested)
    return _seconds_until(requested, headers.get("date"), now) if seconds is None else seconds


def unreachable(error: BaseException) -> Fault:
    """Name the first cause by its class: its text may hold addresses."""
    # Behind a limit that ran out is the cancellation it was brought about with, which is no cause.
    while isinstance(cause := error.__cause__, Exception):
        error = cause
    return Fault("model_unavailable", retryable=True, data={"cause": type(error).__name__})


def _shape_of(status: int, words: set[str], error: object) -> ErrorShape | None:
    message = error.get("message") if isinstance(error, dict) else error
    sentence = message if isinstance(message, str) else ""
    return next((shape for shape in ERRORS if shape.matches(status, words, sentence)), None)


def _words(error: object) -> set[str]:
    """Return the codes and types of an error, in lower case."""
    words: set[str] = set()
    while isinstance(error, dict):
        words |= {word.lower() for name in _NAMES if (word := _word(error.get(name)))}
        metadata = error.get("metadata")
        if isinstance(metadata, dict):
            words |= {"flagged_input"} & metadata.keys()
        error = error.get("innererror")
    return words


def _facts(error: object) -> Facts:
    if not isinstance(error, dict):
        return {}
    named = {name: error.get(name) for name in ("code", "type")}
    return {
        name: value if isinstance(value, int) else _word(value)
        for name, value in named.items()
        if isinstance(value, int) or _word(value)
    }


def _word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _status_in(code: object) -> int:
    digits = str(code)
    return int(digits) if digits.isdecimal() and len(digits) == len("429") else 0


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _seconds_until(until: str, sent: str | None, now: datetime | None) -> float | None:
    try:
        start = now if sent is None else parsedate_to_datetime(sent)
        return (
            None
            if start is None
            else max(0.0, (parsedate_to_datetime(until) - start).total_seconds())
        )
    except (ValueError, TypeError):
        return None
