"""How faults are told in OpenAI's format."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from contract.errors import EffectFailed, Fault, FaultCode, Fenced, TapeCut, TapeMiss
from router.gateway.requests import refusal_of


@pytest.mark.parametrize("code", get_args(FaultCode))
def test_every_fault_is_an_error_with_our_code(code: FaultCode) -> None:
    """Whatever it is, clients learn that asking again is done already."""
    error = refusal_of(EffectFailed(Fault(code, data={"status": 418, "retry_after": 1.2})))
    assert 400 <= error.status < 600
    assert json.loads(error.body())["error"]["code"] == code
    assert (b"x-should-retry", b"false") in error.headers()
    assert (b"retry-after", b"2") in error.headers()
    assert error.message.endswith("(status 418)")


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (503, "server_error")])
def test_the_type_is_openais(status: int, kind: str) -> None:
    """By status."""
    codes: dict[int, FaultCode] = {429: "model_rate_limited", 503: "model_unavailable"}
    error = refusal_of(EffectFailed(Fault(codes[status])))
    assert error.status == status
    assert json.loads(error.body())["error"]["type"] == kind


def test_runs_that_are_over() -> None:
    """One that was replaced, an exchange that ended, a tape without the call."""
    assert [
        refusal_of(error).status for error in (Fenced("r"), TapeCut("c"), TapeMiss("w", None))
    ] == [
        410,
        410,
        422,
    ]
