"""Refusals and failures before the first frame, as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response

from cutover.errors import Failed, Refused

CONTENT_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body; `code` is stable, for programs. It never holds an exception's text."""

    title: str
    status: int
    code: str
    detail: str = ""

    def encode(self) -> bytes:
        """Return the body as JSON."""
        return msgspec.json.encode(self)

    def response(self) -> Response:
        """Return the whole response."""
        return Response(self.encode(), self.status, media_type=CONTENT_TYPE)


def problem(status: int, code: str, detail: str = "") -> Problem:
    """Return a problem with the title of its status."""
    return Problem(HTTPStatus(status).phrase, status, code, detail)


def refused(error: Refused) -> Problem:
    """Return a flow's own refusal."""
    return problem(error.status, error.code, error.detail)


def not_served(failed: Failed) -> Problem:
    """Return the problem of a request that no stack served: 503 where the world is to blame."""
    return problem(503 if failed.blame == "world" else 500, failed.code)
