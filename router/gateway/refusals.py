"""What a client of the gateway is told when there is no answer: OpenAI's format, our own codes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from contract.errors import CutoverError, EffectFailed, TapeMiss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.errors import Fault, FaultCode

_OURS: Final = "server_error"
_THEIRS: Final = "invalid_request_error"

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
_BAD_GATEWAY: Final = 502
_NEVER_TOLD: Final = frozenset({"retry_after"})
"""Facts that stand elsewhere in the answer."""


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


class _Body(msgspec.Struct):
    error: _Error


BODY_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"enum": [_THEIRS, _OURS, "rate_limit_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
"""What the OpenAPI document says of it."""


class GatewayRefused(CutoverError):
    """A call is not answered; `param` names the field of the request that is to blame.

    Where `again` is set, nothing has been tried: the same call may be answered soon.
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
        self.again = False

    def body(self) -> bytes:
        """Encode what goes over the wire, whole or as an event inside a stream."""
        kind = _THEIRS if self.status < HTTPStatus.INTERNAL_SERVER_ERROR else _OURS
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        return msgspec.json.encode(_Body(_Error(self.message, kind, self.param, self.code)))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Give the headers that belong to it."""
        # Of a provider's faults: what asking again could do has been done.
        again = b"true" if self.again else b"false"
        headers = [(b"content-type", b"application/json"), (b"x-should-retry", again)]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % -(-self.retry_after // 1)))
        return headers


def refused(error: CutoverError) -> GatewayRefused:
    """Name what kept a call from being answered: a fault, a tape without it, an exchange over."""
    match error:
        case GatewayRefused():
            return error
        case EffectFailed(fault=fault):
            return _of_fault(fault)
        case TapeMiss(code=code):
            message = "this run plays a tape, and the call is not on it"
            return GatewayRefused(422, code, message)
        case _:
            return GatewayRefused(410, "exchange_over", "nobody waits for this answer any more")


def _of_fault(fault: Fault) -> GatewayRefused:
    facts = [f"{name} {value}" for name, value in fault.data.items() if name not in _NEVER_TOLD]
    told = f" ({', '.join(facts)})" if facts else ""
    asked = fault.data.get("retry_after")
    return GatewayRefused(
        _STATUS.get(fault.code, _BAD_GATEWAY),
        fault.code,
        f"the model did not answer: {fault.code}{told}",
        param="model" if fault.code == "unknown_model" else None,
        retry_after=float(asked) if isinstance(asked, int | float) else None,
    )
