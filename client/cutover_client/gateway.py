"""The exchange of a service over HTTP: the effect API through which it asks and reports."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from cutover_client.calls import ERRORS, Call, GatewayError, Perform, Played, Report
from cutover_client.exchange import Exchange, bound, current_exchange
from cutover_client.requests import HttpRequest, Send

log = logging.getLogger(__name__)

_HEADERS = ("x-cutover-exchange", "x-cutover-role")
_TRIES = 3
_SIGNS = 3
"""Signs of life in the time of a lease."""


class Gateway:
    """The router's effect API, at the router's address and with the gateway's key."""

    def __init__(self, url: str, key: str, *, timeout: float = 30.0) -> None:
        self._options: dict[str, Any] = {
            "base_url": url.rstrip("/"),
            "headers": {"authorization": f"Bearer {key}"},
            "timeout": httpx.Timeout(timeout, connect=5.0),
            "trust_env": False,
        }
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self._blocking: httpx.Client | None = None
        self._making = threading.Lock()

    @contextmanager
    def exchange(self, headers: Mapping[str, str]) -> Iterator[Exchange | None]:
        """Work for the exchange that the headers of a request name; None where they name none.

        `headers` finds names in lower case, as those of Starlette, httpx, aiohttp and Django do.
        """
        found = {name: headers[name] for name in _HEADERS if name in headers}
        exchange: Exchange | None = _HttpExchange(self, found) if _HEADERS[0] in found else None
        known = current_exchange()
        if known is not None and dict(known.headers) == found:
            exchange = known  # in the router's process
        with bound(exchange):
            yield exchange

    def named(self, headers: Mapping[str, str]) -> Exchange:
        """Return the exchange that headers name, or are traced to, for calls made by hand."""
        return _HttpExchange(self, dict(headers))

    def client(self) -> httpx.AsyncClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(**self._options)
        return client

    def blocking_client(self) -> httpx.Client:
        """Return the client of functions that block."""
        with self._making:
            if self._blocking is None:
                self._blocking = httpx.Client(**self._options)
            return self._blocking

    async def aclose(self) -> None:
        """Close the connections."""
        with suppress(KeyError):
            await self._clients.pop(asyncio.get_running_loop()).aclose()
        if self._blocking is not None:
            self._blocking.close()


@dataclass(frozen=True, slots=True)
class _HttpExchange:
    """One request that cutover sent, of which the router is asked over HTTP."""

    gateway: Gateway
    headers: Mapping[str, str]

    async def begin(self, call: Call) -> Perform | Played | None:
        """Ask whether to perform a call; None where it belongs to no exchange.

        Raises `GatewayError`: then nothing is to be performed. So where the exchange is not open
        any more: another run may have performed the call, and the router may have forgotten it.
        """
        try:
            response = await self.gateway.client().post(
                "/effects", json=_asked(call), headers=dict(self.headers)
            )
        except httpx.TransportError as error:
            raise _unreachable(error) from error
        return self._told(response)

    def begin_blocking(self, call: Call) -> Perform | Played | None:
        """Ask as `begin` does."""
        try:
            response = self.gateway.blocking_client().post(
                "/effects", json=_asked(call), headers=dict(self.headers)
            )
        except httpx.TransportError as error:
            raise _unreachable(error) from error
        return self._told(response)

    def _told(self, response: httpx.Response) -> Perform | Played | None:
        if response.status_code != httpx.codes.OK:
            code, why = _refusal(response)
            if code == "unknown_exchange" and _HEADERS[0] not in self.headers:
                return None  # traced at most, as a request is that cutover did not send
            raise ERRORS.get(code, GatewayError)(code, why)
        told = response.json()
        if told["do"] == "perform":
            return Perform(told["lease"], told["seconds"])
        error = told["error"]
        failed = None if error is None else (error["type"], error.get("message", ""))
        return Played(told["items"], told["result"], failed)

    async def report(self, told: Perform, report: Report) -> None:
        """Report what came of an effect; raises nothing, as it has happened."""
        for _ in range(_TRIES):
            with suppress(httpx.TransportError):
                response = await self.gateway.client().post(
                    f"/effects/{told.lease}", json=report.body(), headers=dict(self.headers)
                )
                _check_taken(response)
                return
        log.warning("an effect could not be reported: it is in doubt")

    def report_blocking(self, told: Perform, report: Report) -> None:
        """Report as `report` does."""
        for _ in range(_TRIES):
            with suppress(httpx.TransportError):
                response = self.gateway.blocking_client().post(
                    f"/effects/{told.lease}", json=report.body(), headers=dict(self.headers)
                )
                _check_taken(response)
                return
        log.warning("an effect could not be reported: it is in doubt")

    @asynccontextmanager
    async def alive(self, told: Perform) -> AsyncIterator[None]:
        """Give signs of life while an effect is performed."""
        signs = asyncio.get_running_loop().create_task(self._signs(told))
        try:
            yield
        finally:
            signs.cancel()
            with suppress(asyncio.CancelledError):
                await signs

    async def _signs(self, told: Perform) -> None:
        while True:
            await asyncio.sleep(told.seconds / _SIGNS)
            await self.report(told, Report(over=False))

    @contextmanager
    def alive_blocking(self, told: Perform) -> Iterator[None]:
        """Give signs of life from a thread while an effect is performed in this one."""
        done = threading.Event()

        def signs() -> None:
            while not done.wait(told.seconds / _SIGNS):
                self.report_blocking(told, Report(over=False))

        thread = threading.Thread(target=signs, name="cutover signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def answer(self, request: HttpRequest, send: Send) -> None:
        """Let a call of the model be sent as always."""

    def answer_blocking(self, request: HttpRequest, send: Send) -> None:
        """Let it be sent."""


def _asked(call: Call) -> dict[str, Any]:
    return {
        "effect": call.effect,
        "arguments": call.arguments,
        "read_only": call.read_only,
        "key": call.key,
        "seconds": call.seconds,
    }


def _check_taken(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.NO_CONTENT:
        code, why = _refusal(response)
        if code != "effect_reported":  # a report whose answer was lost
            log.warning("the report of an effect was refused: %s: %s", code, why)


def _refusal(response: httpx.Response) -> tuple[str, str]:
    try:
        error = response.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return f"status_{response.status_code}", "not an answer of the effect API"


def _unreachable(error: httpx.TransportError) -> GatewayError:
    return GatewayError("gateway_unreachable", f"{type(error).__name__}; nothing was performed")
