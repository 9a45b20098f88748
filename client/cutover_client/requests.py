"""Calls that a client of the model makes over HTTP, and their answers, as an exchange sees them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode

_SECRETS: Final = frozenset(
    {
        *("key", "apikey", "secret", "token", "accesstoken", "auth", "authorization", "password"),
        *("code", "sig", "signature", "credential", "xgoogapikey", "subscriptionkey"),
    }
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without its secrets: no headers, and of the query only what is no key.

    `kind` is the content type.
    """

    method: str
    path: str
    query: str
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer; `cause` is what it stands for, where it is no provider's own."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    cause: BaseException | None = None


class HttpFailed(Exception):
    """There is no answer, or not all of one: `kind` is the class of what the transport raised."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the call of the model failed with {kind}")
        self.kind = kind


Answer = AsyncGenerator[Head | bytes, None]
"""The head of an answer and then its body, decompressed, as it comes; raises `HttpFailed`."""

Send = Callable[[], Answer]
"""Sends a request on the loop that the run is on."""


def without_secrets(query: str) -> str:
    """Return a query without the keys and tokens in it."""
    found = parse_qsl(query, keep_blank_values=True)
    return urlencode([(name, value) for name, value in found if not _is_secret(name)])


def _is_secret(name: str) -> bool:
    plain = re.sub(r"[^a-z]", "", name.lower())
    return plain in _SECRETS or plain.endswith(("apikey", "token", "signature", "credential"))
