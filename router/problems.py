"""Refusals and failures before the first frame, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from contract.errors import CutoverError

CONTENT_TYPE = b"application/problem+json"


class Problem(CutoverError):
    """What a client is told; never an exception's text.

    `challenge` says how to prove who one is, where that is missing.
    """

    def __init__(
        self, status: int, code: str, detail: str = "", retry_after: int = 0, challenge: str = ""
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.challenge = challenge

    def body(self) -> bytes:
        """Encode what goes over the wire."""
        title = phrase(self.status)
        return msgspec.json.encode(ProblemBody(title, self.status, self.code, self.detail or None))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Give the headers that belong to it."""
        headers = [(b"content-type", CONTENT_TYPE)]
        if self.retry_after:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.challenge:
            headers.append((b"www-authenticate", self.challenge.encode()))
        return headers


def phrase(status: int) -> str:
    """Give a status's own words; stacks elsewhere know some that are in no register."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def word(status: int) -> str:
    """Give the stable word for a status nobody has said more about: `not_found`."""
    return phrase(status).lower().replace(" ", "_").replace("'", "")


class ProblemBody(msgspec.Struct, omit_defaults=True):
    """What stands in the body; `code` is the stable word for programs."""

    title: str
    status: int
    code: str
    detail: str | None = None
