"""Status codes and provider errors as faults."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contract.errors import Fault, FaultCode
from effects.model.errors import in_band_fault, retry_after, status_fault

TOO_LONG = "This model's maximum context length is 8192 tokens, you asked for 9000"


@pytest.mark.parametrize(
    ("status", "error", "code", "retryable"),
    [
        (400, {"code": "invalid_value"}, "model_bad_request", False),
        (400, {"code": "context_length_exceeded"}, "model_context_length", False),
        (400, {"message": TOO_LONG}, "model_context_length", False),
        (413, TOO_LONG, "model_context_length", False),
        (400, {"code": "content_filter"}, "model_content_policy", False),
        (400, {"code": "content_policy_violation"}, "model_content_policy", False),
        (
            400,
            {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
            "model_content_policy",
            False,
        ),
        (403, {"metadata": {"flagged_input": "…"}}, "model_content_policy", False),
        (401, {"code": "invalid_api_key"}, "model_auth", False),
        (403, "no", "model_auth", False),
        (402, {"code": 402}, "model_rate_limited", False),
        (404, {"code": "model_not_found"}, "unknown_model", False),
        (404, "<html>", "model_unavailable", False),
        (408, None, "model_unavailable", True),
        (409, None, "model_unavailable", True),
        (429, {"message": "too many tokens per minute"}, "model_rate_limited", True),
        (429, {"code": "insufficient_quota"}, "model_rate_limited", False),
        (307, None, "model_unavailable", False),
        (500, {"message": TOO_LONG}, "model_unavailable", True),
        (503, "busy", "model_unavailable", True),
        (529, {"type": "overloaded_error"}, "model_unavailable", True),
    ],
)
def test_a_status_has_its_fault(
    status: int, error: object, code: FaultCode, *, retryable: bool
) -> None:
    """By status first, by the provider's code where the status does not say enough."""
    fault = status_fault(status, {}, error)
    assert (fault.code, fault.retryable) == (code, retryable)
    assert fault.data["status"] == status


def test_small_facts_are_kept_and_sentences_are_not() -> None:
    """Code, type, request id; never a message, and no sentence disguised as a code."""
    error = {"code": "bad_key", "type": "auth error: sk-123", "message": "key sk-123 is wrong"}
    fault = status_fault(401, {"x-request-id": "req_1"}, error)
    assert fault.data == {"status": 401, "code": "bad_key", "request_id": "req_1"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 21:00:30 GMT"}, None),
        (
            {
                "date": "Sat, 21 Nov 2026 21:00:00 GMT",
                "retry-after": "Sat, 21 Nov 2026 21:00:30 GMT",
            },
            30.0,
        ),
        (
            {
                "date": "Sat, 21 Nov 2026 21:00:00 GMT",
                "retry-after": "Sat, 21 Nov 2026 20:00:00 GMT",
            },
            0.0,
        ),
        ({"date": "Sat, 21 Nov 2026 21:00:00 GMT", "retry-after": "soon"}, None),
    ],
)
def test_retry_after_in_seconds(headers: dict[str, str], seconds: float | None) -> None:
    """A number, milliseconds, or a date measured against the provider's own clock."""
    assert retry_after(headers) == seconds


def test_a_date_counts_from_now_where_the_response_has_none() -> None:
    """Few small servers send a `Date`."""
    now = datetime(2026, 11, 21, 21, tzinfo=UTC)
    headers = {"retry-after": "Sat, 21 Nov 2026 21:00:30 GMT"}
    assert retry_after(headers, now) == 30.0
    assert status_fault(429, headers, None, now).data["retry_after"] == 30.0


def test_how_long_to_wait_is_a_fact() -> None:
    """For the retry."""
    fault = status_fault(429, {"retry-after": "2"}, None)
    assert fault == Fault(
        "model_rate_limited", retryable=True, data={"status": 429, "retry_after": 2.0}
    )


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"code": 400}, False),
        ({"code": 502}, True),
        ({"code": "429"}, True),
        ({"type": "server_error"}, True),
        ({"type": "invalid_request_error", "code": "tool_use_failed"}, False),
        ("text", False),
        (None, False),
    ],
)
def test_an_error_inside_a_stream(error: object, *, retryable: bool) -> None:
    """Mostly `model_error`; asking again helps when the provider was busy."""
    fault = in_band_fault(error)
    assert (fault.code, fault.retryable) == ("model_error", retryable)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("content_filter", "model_content_policy"),
        ("context_length_exceeded", "model_context_length"),
    ],
)
def test_an_error_inside_a_stream_about_the_request(code: str, named: FaultCode) -> None:
    """What is wrong with the request has its own code, wherever it is said."""
    assert in_band_fault({"code": code}) == Fault(named, data={"code": code})
