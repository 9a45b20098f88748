"""What a client of the gateway sends: its fields, its key on the tape, and refusals.

Only the fields the gateway needs are decoded, the rest is passed on as bytes: decoding all of a
large body would block the loop.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from contract.errors import CutoverError, EffectFailed, TapeMiss
from contract.model import PassedCall
from effects.tape import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from contract.errors import Fault, FaultCode


_SERVER: Final = "server_error"
_CLIENT: Final = "invalid_request_error"

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
_IN_HEADERS: Final = frozenset({"retry_after"})
"""Facts of a fault that headers carry."""


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
                "type": {"enum": [_CLIENT, _SERVER, "rate_limit_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
"""The schema of a refusal, for the OpenAPI document."""


class GatewayRefused(CutoverError):
    """A call that is not answered, in OpenAI's format; `param` names the field at fault.

    Where `again` is set, no provider was called: the same call may be answered soon.
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
        """Return the body, also of an event inside a stream."""
        kind = _CLIENT if self.status < HTTPStatus.INTERNAL_SERVER_ERROR else _SERVER
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        return msgspec.json.encode(_Body(_Error(self.message, kind, self.param, self.code)))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that go with the body."""
        # A provider's fault has been retried below.
        again = b"true" if self.again else b"false"
        headers = [(b"content-type", b"application/json"), (b"x-should-retry", again)]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % -(-self.retry_after // 1)))
        return headers


def refusal_of(error: CutoverError) -> GatewayRefused:
    """Return the refusal for a fault, for a call not on the tape, or for an ended exchange."""
    match error:
        case GatewayRefused():
            return error
        case EffectFailed(fault=fault):
            return _of_fault(fault)
        case TapeMiss(code=code):
            message = "this run plays a tape, and the call is not on it"
            return GatewayRefused(422, code, message)
        case _:
            return GatewayRefused(
                410, "exchange_over", "the run was replaced, or its exchange has ended"
            )


def _of_fault(fault: Fault) -> GatewayRefused:
    facts = [f"{name} {value}" for name, value in fault.data.items() if name not in _IN_HEADERS]
    detail = f" ({', '.join(facts)})" if facts else ""
    wait = fault.data.get("retry_after")
    return GatewayRefused(
        _STATUS.get(fault.code, _BAD_GATEWAY),
        fault.code,
        f"the model did not answer: {fault.code}{detail}",
        param="model" if fault.code == "unknown_model" else None,
        retry_after=float(wait) if isinstance(wait, int | float) else None,
    )


_CODE: Final = "invalid_request"
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FILLED: Final = re.compile(rb"\[\s*[^\s\]]")
_READ: Final = frozenset({"model", "n", "stream", "stream_options"})
_NOT_MORE: Final = frozenset({"model", "messages", "stream", "stream_options"})
ILLEGIBLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A call, and the form of its answer: streamed or whole, with the usage or without."""

    call: PassedCall
    stream: bool
    usage: bool


class NoObject(GatewayRefused):
    """A body that cannot be read."""

    def __init__(self) -> None:
        super().__init__(400, _CODE, "the body is not a JSON object")


def read_request(body: bytes) -> CompletionRequest:
    """Read a request's body; raises `GatewayRefused`."""
    try:
        body.decode()  # fields that are passed on must be text, too
        fields = _DECODER.decode(body)
        read_request = {name: msgspec.json.decode(fields[name]) for name in _READ & fields.keys()}
    except ILLEGIBLE as error:
        raise NoObject from error
    model, messages = read_request.get("model"), fields.get("messages")
    if not isinstance(model, str) or not model:
        raise GatewayRefused(400, _CODE, "must be the id of a model", param="model")
    if messages is None or not _FILLED.match(messages):
        raise GatewayRefused(400, _CODE, "must be a list of messages", param="messages")
    if (many := read_request.get("n")) is not None and (type(many) is not int or many != 1):
        raise GatewayRefused(400, _CODE, "must be 1: there is one answer per call", param="n")
    stream, usage, options = _answer_form(read_request)
    more = {name: raw for name, raw in fields.items() if name not in _NOT_MORE}
    if options:
        more["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return CompletionRequest(
        PassedCall(model_id=model, messages=messages, more=more), stream, usage
    )


def _answer_form(read_request: dict[str, Any]) -> tuple[bool, bool, dict[str, Any]]:
    """Take out the form of the answer: it is no part of the question."""
    stream = read_request.get("stream") or False
    if not isinstance(stream, bool):
        raise GatewayRefused(400, _CODE, "must be true or false", param="stream")
    options = read_request.get("stream_options") or {}
    if not isinstance(options, dict):
        raise GatewayRefused(400, _CODE, "must be an object", param="stream_options")
    usage = options.pop("include_usage", None) or False
    return stream, bool(usage), options


PIECE: Final = 1 << 16
"""Bytes of JSON decoded in one turn of the loop; a string is never split."""

_ANY: Final = msgspec.json.Decoder(Any)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTED: Final = msgspec.json.Encoder(order="sorted")


async def call_key(call: PassedCall) -> bytes:
    """Return a call's arguments as `canonical` encodes them, with keys in order.

    Large bodies are decoded piece by piece, with a turn of the loop between two: decoded whole,
    15 MB of small values block it for a second. Raises what decoding JSON raises.
    """
    more = {name: await _ordered(raw) for name, raw in call.more.items()}
    messages = await _ordered(call.messages)
    return canonical(PassedCall(model_id=call.model_id, messages=messages, more=more))


async def _ordered(raw: msgspec.Raw) -> msgspec.Raw:
    pieces: list[bytes] = []
    done = 0
    for size, piece in _pieces(bytes(raw)):
        pieces.append(piece)
        done += size
        if done >= PIECE:
            done = 0
            await asyncio.sleep(0)
    return msgspec.Raw(b"".join(pieces))


def _pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a value encoded anew in pieces, each with the bytes of the old one it stands for."""
    if len(data) > PIECE and data[:1] in b"[{":
        yield PIECE, b""  # splitting it takes a turn of its own
        yield from (
            _list_pieces(_LIST.decode(data))
            if data[:1] == b"["
            else _object_pieces(_OBJECT.decode(data))
        )
    else:
        yield len(data), _SORTED.encode(_ANY.decode(data))


def _list_pieces(values: Iterable[msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    joint = b"["
    some: list[msgspec.Raw] = []
    size = 0
    for value in values:
        length = len(memoryview(value))
        if some and size + length > PIECE:
            yield size, joint + _joined_values(some)
            joint, some, size = b",", [], 0
        if length > PIECE:
            yield 0, joint
            yield from _pieces(bytes(value))
            joint = b","
        else:
            some.append(value)
            size += length + 1
    if some or joint == b"[":
        yield size, joint + _joined_values(some)
    yield 1, b"]"


def _joined_values(values: list[msgspec.Raw]) -> bytes:
    """Return values encoded anew, with commas between them."""
    return _SORTED.encode(_ANY.decode(b"[" + b",".join(values) + b"]"))[1:-1]


def _object_pieces(fields: dict[str, msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    joint = b"{"
    for name in sorted(fields):
        yield 0, joint + _SORTED.encode(name) + b":"
        yield from _pieces(bytes(fields[name]))
        joint = b","
    yield 1, b"}" if joint == b"," else b"{}"
