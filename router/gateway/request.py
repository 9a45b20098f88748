"""A chat completion as a client asks for it: what concerns us is read, the rest passed on unread.

Nobody here asks what is in it, and to decode all of a large body would hold up the loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from contract.model import PassedCall
from router.gateway.refusals import GatewayRefused

_CODE: Final = "invalid_request"
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FILLED: Final = re.compile(rb"\[\s*[^\s\]]")
_READ: Final = frozenset({"model", "n", "stream", "stream_options"})
_NOT_MORE: Final = frozenset({"model", "messages", "stream", "stream_options"})
ILLEGIBLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, and how its client wants the answer."""

    call: PassedCall
    stream: bool
    usage: bool


class NoObject(GatewayRefused):
    """A body that cannot be read."""

    def __init__(self) -> None:
        super().__init__(400, _CODE, "the body is no JSON object")


def read(body: bytes) -> Asked:
    """Read a request's body; raises `GatewayRefused`."""
    try:
        body.decode()  # what is passed over unread is text all the same
        fields = _DECODER.decode(body)
        read = {name: msgspec.json.decode(fields[name]) for name in _READ & fields.keys()}
    except ILLEGIBLE as error:
        raise NoObject from error
    model, messages = read.get("model"), fields.get("messages")
    if not isinstance(model, str) or not model:
        raise GatewayRefused(400, _CODE, "the id of a model is due", param="model")
    if messages is None or not _FILLED.match(messages):
        raise GatewayRefused(400, _CODE, "a list of messages is due", param="messages")
    if (many := read.get("n")) is not None and (type(many) is not int or many != 1):
        raise GatewayRefused(400, _CODE, "one answer a call is given", param="n")
    stream, usage, options = _wish(read)
    more = {name: raw for name, raw in fields.items() if name not in _NOT_MORE}
    if options:
        more["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return Asked(PassedCall(model_id=model, messages=messages, more=more), stream, usage)


def _wish(read: dict[str, Any]) -> tuple[bool, bool, dict[str, Any]]:
    """Take out how the answer is wanted: that is no part of the question."""
    stream = read.get("stream") or False
    if not isinstance(stream, bool):
        raise GatewayRefused(400, _CODE, "true or false is due", param="stream")
    options = read.get("stream_options") or {}
    if not isinstance(options, dict):
        raise GatewayRefused(400, _CODE, "an object is due", param="stream_options")
    usage = options.pop("include_usage", None) or False
    return stream, bool(usage), options
