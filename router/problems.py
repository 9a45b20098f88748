"""Refusals and failures before the first frame, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from contract.errors import CutoverError

CONTENT_TYPE = b"application/problem+json"


class Problem(CutoverError):
    """An error response; never an exception's text.

    `challenge` is the authentication scheme, where credentials are missing.
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
        """Encode the body."""
        title = phrase(self.status)
        return msgspec.json.encode(ProblemBody(title, self.status, self.code, self.detail or None))

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return its headers."""
        headers = [(b"content-type", CONTENT_TYPE)]
        if self.retry_after:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.challenge:
            headers.append((b"www-authenticate", self.challenge.encode()))
        return headers


def phrase(status: int) -> str:
    """Return the phrase of a status; remote stacks may use unregistered ones."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def word(status: int) -> str:
    """Return the default code of a status, such as `not_found`."""
    return phrase(status).lower().replace(" ", "_").replace("'", "")


class ProblemBody(msgspec.Struct, omit_defaults=True):
    """The body of a problem; `code` is stable, for programs."""

    title: str
    status: int
    code: str
    detail: str | None = None
