"""What a client of the gateway sends: its fields, and its key on the tape.

Only the fields the gateway needs are decoded, the rest is passed on as bytes: decoding all of a
large body would block the loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from contract.model import PassedCall, WholePassedCall
from effects.tape import canonical
from router.gateway.refusals import GatewayRefused

_CODE: Final = "invalid_request"
_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FILLED: Final = re.compile(rb"\[\s*[^\s\]]")
_READ: Final = frozenset({"model", "n", "stream", "stream_options"})
_NOT_MORE: Final = frozenset({"model", "messages", "stream", "stream_options"})
ILLEGIBLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of what is no JSON."""


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
    except ILLEGIBLE as error:
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
        more = {name: await ordered(raw) for name, raw in call.more.items()}
        messages = await ordered(call.messages)
    except ILLEGIBLE as error:
        raise UnreadableBody from error
    return canonical(PassedCall(model_id=call.model_id, messages=messages, more=more))


async def ordered(raw: msgspec.Raw) -> msgspec.Raw:
    """Return JSON with keys in order; raises one of `ILLEGIBLE`."""
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
