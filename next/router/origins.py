"""Pages of other origins: refused where they would change something, unless they are configured."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from router.problem import problem

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWN = ("x-cutover-exchange", "x-cutover-assigned", "x-cutover-served", "retry-after")
"""Headers of answers that pages of the configured origins may read."""


def guard(app: FastAPI, origins: Collection[str]) -> None:
    """Let pages of `origins` use the application ("*": of all), and refuse those of others."""
    app.add_middleware(_OwnOrigin, origins=frozenset(origins))
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(SHOWN),
        )


class _OwnOrigin:
    """Refuses requests that a page of another origin makes a browser send, but for reading.

    Browsers send such a request without asking first where its media type is text; programs that
    are no browsers send no `Origin`.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app, self._origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READS and self._foreign(scope):
            detail = "pages of this origin may not use this server: see [server] origins"
            await problem(403, "foreign_origin", detail).response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _foreign(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is None or {origin, "*"} & self._origins:
            return False
        return origin.partition("://")[2] != headers.get("host")
