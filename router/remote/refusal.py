"""Refusals of a stack behind an address: they go to the client as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import Refused
from router.problems import word

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from router.driving import Headers

_MOST_BYTES = 65_536
_JSON = ("application/json", "application/problem+json")


class RemoteRefused(Refused):
    """A stack turns a request down; `body` is None where it is nothing to be shown to a client."""

    def __init__(self, status: int, code: str, headers: Headers, body: bytes | None) -> None:
        super().__init__(status, code)
        self.headers = headers
        self.body = body


class _Said(msgspec.Struct):
    """What a problem's body may say of its kind."""

    code: str = ""


_said = msgspec.json.Decoder(_Said)


async def refusal(response: ClientResponse, headers: Headers) -> RemoteRefused:
    """Read a refusal: a JSON body is passed on, any other is not for clients of an API."""
    body = b""
    while len(body) <= _MOST_BYTES and (piece := await response.content.readany()):
        body += piece
    if response.content_type not in _JSON or len(body) > _MOST_BYTES:
        kept = tuple((name, value) for name, value in headers if name == b"retry-after")
        return RemoteRefused(response.status, word(response.status), kept, None)
    return RemoteRefused(response.status, _code(response.status, body), headers, body)


def _code(status: int, body: bytes) -> str:
    try:
        return _said.decode(body).code or word(status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return word(status)
