"""Refusals of gateway calls, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Literal

import msgspec

from contract.errors import CutoverError, EffectFailed, FaultCode, TapeMiss
from router.problems import Problem

_STATUS: Final[Mapping[FaultCode, int]] = {
    "unknown_model": 404,
    "model_rate_limited": 429,
    "model_bad_request": 400,
    "model_context_length": 400,
    "model_content_policy": 400,
    "model_unavailable": 503,
    "model_timeout_first_byte": 504,
    "model_timeout_first_token": 504,
    "model_timeout_idle": 504,
    "model_timeout_total": 504,
}


class RefusalError(msgspec.Struct):
    """What is wrong with a call; `param` names the field at fault."""

    message: str
    type: Literal["invalid_request_error", "server_error", "rate_limit_error"]
    param: str | None
    code: str


class RefusalBody(msgspec.Struct):
    """The body of a refusal in OpenAI's format."""

    error: RefusalError


class GatewayRefused(CutoverError):
    """A call that is not answered, in OpenAI's format; `param` names the field at fault.

    Where it is `retryable`, no provider was called: the same call may be answered soon.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.retryable = False

    def body(self) -> bytes:
        """Return the body, also of an event inside a stream."""
        error = RefusalError(self.message, "invalid_request_error", self.param, self.code)
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            error.type = "rate_limit_error"
        elif self.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            error.type = "server_error"
        return msgspec.json.encode(RefusalBody(error))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go with the body."""
        # A provider's fault has been retried below.
        retry = b"true" if self.retryable else b"false"
        headers = [(b"content-type", b"application/json"), (b"x-should-retry", retry)]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % -(-self.retry_after // 1)))
        return headers


def refusal_of(error: CutoverError) -> GatewayRefused:
    """Return the refusal for a fault, a problem, a call not on the tape, or an ended exchange."""
    match error:
        case GatewayRefused():
            return error
        case Problem(status=status, code=code, detail=detail, retry_after=wait):
            refused = GatewayRefused(status, code, detail, retry_after=wait or None)
            refused.retryable = wait > 0
            return refused
        case EffectFailed(fault=fault):
            seconds = fault.data.get("retry_after")  # stands in a header
            facts = [f"{name} {fact}" for name, fact in fault.data.items() if name != "retry_after"]
            detail = f" ({', '.join(facts)})" if facts else ""
            return GatewayRefused(
                _STATUS.get(fault.code, HTTPStatus.BAD_GATEWAY),
                fault.code,
                f"the model did not answer: {fault.code}{detail}",
                param="model" if fault.code == "unknown_model" else None,
                retry_after=float(seconds) if isinstance(seconds, int | float) else None,
            )
        case TapeMiss(code=code):
            why = "this run plays a tape, and the call is not on it"
            return GatewayRefused(422, code, why)
        case _:
            why = "the run was replaced, or its exchange has ended"
            return GatewayRefused(410, "exchange_over", why)
