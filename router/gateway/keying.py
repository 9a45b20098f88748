"""What a call is known by on the tape: its arguments, their keys in order, whoever wrote them.

Large bodies are taken piece by piece, and others have their turn between two pieces: decoded whole,
fifteen megabytes of small values held the loop for a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from contract.model import PassedCall
from effects.tape import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PIECE: Final = 1 << 16
"""Bytes of JSON that are decoded in one turn of the loop; a text stays whole."""

_ANY: Final = msgspec.json.Decoder(Any)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTED: Final = msgspec.json.Encoder(order="sorted")


async def key_of(call: PassedCall) -> bytes:
    """Give the arguments of a call whose fields are raw as `canonical` would, were they not.

    Raises what decoding JSON does.
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
    """Yield a value written anew, with how many bytes of the old one each piece was made of."""
    if len(data) > PIECE and data[:1] in b"[{":
        yield PIECE, b""  # to look for what is in it takes a turn of its own
        yield from _list(_LIST.decode(data)) if data[:1] == b"[" else _object(_OBJECT.decode(data))
    else:
        yield len(data), _SORTED.encode(_ANY.decode(data))


def _list(values: Iterable[msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    joint = b"["
    some: list[msgspec.Raw] = []
    size = 0
    for value in values:
        length = len(memoryview(value))
        if some and size + length > PIECE:
            yield size, joint + _within(some)
            joint, some, size = b",", [], 0
        if length > PIECE:
            yield 0, joint
            yield from _pieces(bytes(value))
            joint = b","
        else:
            some.append(value)
            size += length + 1
    if some or joint == b"[":
        yield size, joint + _within(some)
    yield 1, b"]"


def _within(values: list[msgspec.Raw]) -> bytes:
    """Write values anew, with commas between them."""
    return _SORTED.encode(_ANY.decode(b"[" + b",".join(values) + b"]"))[1:-1]


def _object(fields: dict[str, msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    joint = b"{"
    for name in sorted(fields):
        yield 0, joint + _SORTED.encode(name) + b":"
        yield from _pieces(bytes(fields[name]))
        joint = b","
    yield 1, b"}" if joint == b"," else b"{}"
