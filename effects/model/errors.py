"""Errors of providers as faults: a status, an error in a stream, a broken connection."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from contract.errors import Fault, FaultCode

Facts = dict[str, str | int | float | bool | None]

_WORD: Final = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_POLICY: Final = frozenset(
    {
        "content_filter",
        "content_policy",
        "content_policy_violation",
        "moderation_blocked",
        "responsibleaipolicyviolation",
    }
)
_BY_STATUS: Final[Mapping[int, FaultCode]] = {
    HTTPStatus.UNAUTHORIZED: "model_auth",
    HTTPStatus.PAYMENT_REQUIRED: "model_rate_limited",
    HTTPStatus.FORBIDDEN: "model_auth",
    HTTPStatus.TOO_MANY_REQUESTS: "model_rate_limited",
}
_REQUEST_ERRORS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_UNPAID: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_TOO_LONG: Final = re.compile(
    r"context.?(length|window)|maximum context|(prompt|input) is too long|too many tokens",
    re.IGNORECASE,
)
_TRANSIENT: Final = frozenset(
    {"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_error", "timeout"}
)


def status_fault(
    status: int, headers: Mapping[str, str], error: object, now: datetime | None = None
) -> Fault:
    """Name the fault of an error response; `error` is its body's `error`, decoded if it was JSON.

    `now` is when it came, for a date to wait until where the response has no date of its own.

    `data` may hold `status`, the provider's `code` and `type`, `request_id`, and `retry_after` in
    seconds. The provider's sentence is read but never stored: it may quote prompts and keys.
    """
    facts: Facts = {"status": status, **_facts(error)}
    if request_id := _word(headers.get("x-request-id")):
        facts["request_id"] = request_id
    if (seconds := retry_after(headers, now)) is not None:
        facts["retry_after"] = seconds
    code, retryable = _code_of(status, error)
    return Fault(code, retryable, facts)


def error_in(body: bytes) -> object:
    """Return the error of a response's body: its `error`, all its JSON, or its text."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value.get("error", value) if isinstance(value, dict) else value


def in_band_fault(error: object) -> Fault:
    """Name the fault of an error that came inside a stream of status 200."""
    facts = _facts(error)
    words = {word.lower() for word in _words(error)}
    if _violates_policy(error, words):
        return Fault("model_content_policy", data=facts)
    if "context_length_exceeded" in words:
        return Fault("model_context_length", data=facts)
    status = _status_in(facts.get("code"))
    transient = _is_transient(status) if status else not _TRANSIENT.isdisjoint(facts.values())
    return Fault("model_error", transient, facts)


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


def _code_of(status: int, error: object) -> tuple[FaultCode, bool]:
    """Return the fault's code, and whether calling again could help."""
    words = {word.lower() for word in _words(error)}
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and _violates_policy(error, words):
        return "model_content_policy", False
    if status in _REQUEST_ERRORS and _too_long(error, words):
        return "model_context_length", False
    if status == HTTPStatus.NOT_FOUND and "model_not_found" in words:
        return "unknown_model", False
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "model_unavailable", False  # redirects are not followed; they lead there each time
    if _is_transient(status):
        return _BY_STATUS.get(status, "model_unavailable"), _UNPAID.isdisjoint(words)
    return _BY_STATUS.get(status, "model_bad_request"), False


def _is_transient(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }


def _violates_policy(error: object, words: set[str]) -> bool:
    if not _POLICY.isdisjoint(words):
        return True
    metadata = error.get("metadata") if isinstance(error, dict) else None
    return isinstance(metadata, dict) and "flagged_input" in metadata


def _too_long(error: object, words: set[str]) -> bool:
    message = error.get("message") if isinstance(error, dict) else error
    matches = isinstance(message, str) and _TOO_LONG.search(message) is not None
    return matches or "context_length_exceeded" in words


def _words(error: object) -> list[str]:
    if not isinstance(error, dict):
        return []
    own = [word for name in ("code", "type") if (word := _word(error.get(name)))]
    return own + _words(error.get("innererror"))


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
