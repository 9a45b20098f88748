"""What a client of the gateway sends: its fields, its key on the tape, and refusals.

Only the fields the gateway needs are decoded, the rest is passed on as bytes: decoding all of a
large body would block the loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec

from contract.errors import CutoverError, EffectFailed, FaultCode, TapeMiss
from contract.model import PassedCall, WholePassedCall
from effects.tape import canonical
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


_CODE: Final = "invalid_request"
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FILLED: Final = re.compile(rb"\[\s*[^\s\]]")
_READ: Final = frozenset({"model", "n", "stream", "stream_options"})
_NOT_MORE: Final = frozenset({"model", "messages", "stream", "stream_options"})
_ILLEGIBLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A call, and the form of its answer: streamed or whole, with the usage or without."""

    call: PassedCall
    stream: bool
    usage: bool


class UnreadableBody(GatewayRefused):
    """A body that cannot be read."""

    def __init__(self) -> None:
        super().__init__(400, _CODE, "the body is not a JSON object")


def read_request(body: bytes) -> CompletionRequest:
    """Read a request's body; raises `GatewayRefused`."""
    try:
        body.decode()  # fields that are passed on must be text, too
        fields = _DECODER.decode(body)
        read = {name: msgspec.json.decode(fields[name]) for name in _READ & fields.keys()}
    except _ILLEGIBLE as error:
        raise UnreadableBody from error
    # The form of the answer is no part of the question.
    model, messages = read.get("model", ""), fields.get("messages", msgspec.Raw())
    stream, options = read.get("stream") or False, read.get("stream_options") or {}
    count = read.get("n")
    for param, good, due in (
        ("model", isinstance(model, str) and model, "the id of a model"),
        ("messages", _FILLED.match(messages), "a list of messages"),
        (
            "n",
            count is None or (type(count) is int and count == 1),
            "1: there is one answer per call",
        ),
        ("stream", isinstance(stream, bool), "true or false"),
        ("stream_options", isinstance(options, dict), "an object"),
    ):
        if not good:
            raise GatewayRefused(400, _CODE, f"must be {due}", param=param)
    usage = options.pop("include_usage", None) or False
    more = {name: raw for name, raw in fields.items() if name not in _NOT_MORE}
    if options:
        more["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    form = PassedCall if stream else WholePassedCall
    call = form(model_id=model, messages=messages, more=more)
    return CompletionRequest(call, stream, bool(usage))


PIECE: Final = 1 << 16
"""Bytes of JSON decoded in one turn of the loop; a string is never split."""

_ANY: Final = msgspec.json.Decoder(Any)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTED: Final = msgspec.json.Encoder(order="sorted")


async def call_key(call: PassedCall) -> bytes:
    """Return a call's arguments as `canonical` encodes them, with keys in order.

    Large bodies are decoded piece by piece, with a turn of the loop between two: decoded whole,
    15 MB of small values block it for a second. Raises `GatewayRefused`.
    """
    try:
        more = {name: await _ordered(raw) for name, raw in call.more.items()}
        messages = await _ordered(call.messages)
    except _ILLEGIBLE as error:
        raise UnreadableBody from error
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
