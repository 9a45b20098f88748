"""Refusals of a stack behind an address: they go to the client as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import Refused
from router.problems import word

if TYPE_CHECKING:
    from router.remote.http1.answer import Answer
    from router.stack import Headers

_MOST_BYTES = 65_536
_JSON = (b"application/json", b"application/problem+json")


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


async def refusal(answer: Answer, headers: Headers) -> RemoteRefused:
    """Read a refusal: a JSON body is passed on, any other is not for clients of an API."""
    body = await answer.read(_MOST_BYTES)
    kind = answer.header(b"content-type").partition(b";")[0].strip().lower()
    if kind not in _JSON or len(body) > _MOST_BYTES:
        kept = tuple((name, value) for name, value in headers if name == b"retry-after")
        return RemoteRefused(answer.status, word(answer.status), kept, None)
    return RemoteRefused(answer.status, _code(answer.status, body), headers, body)


def _code(status: int, body: bytes) -> str:
    try:
        return _said.decode(body).code or word(status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return word(status)
