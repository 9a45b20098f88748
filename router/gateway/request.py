"""A chat completion as a client asks for it: what concerns us is read, the rest passed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from contract.model import PassedCall
from router.gateway.refusals import GatewayRefused

_CODE: Final = "invalid_request"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, and how its client wants the answer."""

    call: PassedCall
    stream: bool
    usage: bool


def read(body: bytes) -> Asked:
    """Read a request's body; raises `GatewayRefused`."""
    try:
        fields = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayRefused(400, _CODE, "the body is no JSON object") from error
    model = fields.pop("model", None)
    messages = fields.pop("messages", None)
    if not isinstance(model, str) or not model:
        raise GatewayRefused(400, _CODE, "the id of a model is due", param="model")
    if not isinstance(messages, list) or not messages:
        raise GatewayRefused(400, _CODE, "a list of messages is due", param="messages")
    if (many := fields.get("n")) is not None and (type(many) is not int or many != 1):
        raise GatewayRefused(400, _CODE, "one answer a call is given", param="n")
    stream, usage = _wish(fields)
    return Asked(PassedCall(model_id=model, messages=messages, more=fields), stream, usage)


def _wish(fields: dict[str, Any]) -> tuple[bool, bool]:
    """Take out how the answer is wanted: that is no part of the question."""
    stream = fields.pop("stream", None) or False
    if not isinstance(stream, bool):
        raise GatewayRefused(400, _CODE, "true or false is due", param="stream")
    options = fields.pop("stream_options", None) or {}
    if not isinstance(options, dict):
        raise GatewayRefused(400, _CODE, "an object is due", param="stream_options")
    usage = options.pop("include_usage", None) or False
    if options:
        fields["stream_options"] = options
    return stream, bool(usage)
