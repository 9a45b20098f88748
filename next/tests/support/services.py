"""Services in processes of their own, as near as a test can have them: behind sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx
import msgspec
import uvicorn

from cutover import Event, Request, StackFailed
from cutover.tape import current_run
from router.gateway.effects import Effects
from router.runs import OpenRuns, headers
from tests.support.ask import ASK


class _Server(uvicorn.Server):
    """uvicorn, which leaves the test's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def serving(app: Any, *, apart: bool = True) -> AsyncIterator[str]:
    """Serve an application on loopback, `apart` in a thread with a loop of its own; yield its URL.

    A service that blocks its loop must not block that of the gateway.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # asyncio sets it for sockets that it binds itself alone
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = _Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        sockets = [listening]
        run = asyncio.to_thread(server.run, sockets) if apart else server.serve(sockets)
        task = asyncio.create_task(run)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


class EffectsServer:
    """The effects of a gateway alone: an application of ASGI."""

    def __init__(self) -> None:
        self.runs = OpenRuns()
        self.effects = Effects(self.runs)
        self.asked: list[tuple[str, Any]] = []
        """What came in: the number in the path, and the body."""
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer `POST /runs/{id}/effects` and its reports."""
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        _, _, name, _, *number = scope["path"].split("/")
        self.asked.append(("".join(number), msgspec.json.decode(body)))
        task = asyncio.ensure_future(self.effects.answer(name, "".join(number), body))
        leaving = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                status, sent = task.result()
                await send({"type": "http.response.start", "status": status, "headers": []})
                await send({"type": "http.response.body", "body": sent})
        finally:
            for one in (task, leaving):
                one.cancel()
                with suppress(asyncio.CancelledError):
                    await one

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EffectsServer]:
        """Serve it."""
        async with serving(self, apart=False) as self.url:
            yield self

    def stack(self, url: str, key: str = "") -> Any:
        """Return a stack that is a service at `url`, which streams the events of `ASK`."""

        async def behind(request: Request[Any, Any]) -> AsyncIterator[Event]:
            run = current_run()
            assert run is not None
            said = headers(self.runs.open(run), self.url, key)
            body = msgspec.to_builtins(request.body)
            try:
                async with (
                    httpx.AsyncClient(timeout=30, verify=False) as client,  # noqa: S501 - loopback
                    client.stream("POST", url, json=body, headers=said) as answer,
                ):
                    if answer.status_code != 200:
                        code = f"status_{answer.status_code}"
                        raise StackFailed(code)
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            yield msgspec.json.decode(line.removeprefix("data: "), type=ASK.events)
            except httpx.TransportError as error:
                raise StackFailed("service_broke") from error

        return behind
