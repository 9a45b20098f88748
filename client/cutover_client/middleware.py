"""ASGI middleware: each request that cutover sent is handled as its exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from cutover_client.gateway import Gateway

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Application = Callable[[_Message, _Receive, _Send], Awaitable[None]]


class ExchangeMiddleware:
    """Sets the exchange for everything a request does, also while its answer streams."""

    def __init__(self, app: _Application, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        with self._gateway.exchange(headers):
            await self._app(scope, receive, send)
