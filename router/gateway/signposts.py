"""The gateway's paths on the users' listener, where it has one of its own: refused, and why."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from router.gateway.refusals import GatewayRefused

_PATHS: Final = (
    "/v1/chat/completions",
    "/v1/models",
    "/effects",
    "/effects/{lease}",
    "/mcp/{server}",
)
_REFUSED: Final = GatewayRefused(
    404, "other_address", "the gateway listens on an address of its own: [gateway] listen"
)


def add_signposts(app: FastAPI) -> None:
    """Refuse the gateway's calls on an application: none is read, passed on or let in."""
    for path in _PATHS:
        for below in ("", "/exchanges/{exchange}"):
            route = Route(f"{below}{path}", _refuse, methods=["GET", "POST"])
            app.router.routes.append(route)


async def _refuse(_: Request) -> Response:
    headers = {name.decode(): value.decode() for name, value in _REFUSED.headers()}
    return Response(_REFUSED.body(), _REFUSED.status, headers)
