"""Faults: how an effect can fail, as a value that fits on the tape."""

from __future__ import annotations

from typing import Literal

import msgspec

FaultCode = Literal[
    # model
    "unknown_model",
    "model_auth",
    "model_rate_limited",
    "model_unavailable",
    "model_bad_request",
    "model_context_length",
    "model_content_policy",
    "model_error",
    "model_truncated",
    "model_timeout_first_byte",
    "model_timeout_first_token",
    "model_timeout_idle",
    "model_timeout_total",
    # stores, locks, humans, tools
    "store_unavailable",
    "store_failed",
    "memory_unavailable",
    "memory_failed",
    "lock_unavailable",
    "tool_list_failed",
    "human_unavailable",
    "second_question",
    "pause_outdated",
    "pause_sealed",
    # anything an adapter did not foresee; its text stays in the log
    "adapter_failed",
    "deadline",
]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an effect failed: a stable code, whether asking again could help, and small facts.

    `data` holds facts for people who debug (status codes, limits in seconds): never an
    exception's text, a key or a header.
    """

    code: FaultCode
    retryable: bool = False
    data: dict[str, str | int | float | bool | None] = {}
