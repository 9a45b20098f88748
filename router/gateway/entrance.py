"""What every address of the gateway begins with: the key, the body, and the worker it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from starlette.types import Receive, Scope, Send

from router.context import TRACE_HEADER
from router.gateway.correlation import OpenExchanges, open_runs
from router.gateway.peers import NOT_HERE, WorkerPeers, is_passed_on
from router.gateway.refusals import GatewayRefused, refusal_of
from router.http.connection import BodyMemory, DisconnectWatch
from router.http.endpoints import send_whole
from router.problems import Problem
from router.stack import Headers, header_of

Answer = Callable[[Scope, bytes, Send], Coroutine[Any, Any, None]]
"""Answers a call whose body was read; raises `GatewayRefused` before the answer begins."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Lets callers in; with a key, they must show it.

    `on_outside`, where it is set, is called with each call that belongs to no exchange, which is
    refused then; otherwise the world answers it.
    """

    exchanges: OpenExchanges
    key: bytes
    max_body_bytes: int
    peers: WorkerPeers | None = None
    on_outside: Callable[[], object] | None = None

    def admit(self, headers: Headers) -> None:
        """Check a caller's key; raises `GatewayRefused` 401."""
        kind, _, key = header_of(headers, b"authorization").partition(b" ")
        shown = kind.lower() == b"bearer" and compare_digest(key.strip(), self.key)
        if self.key and not shown:
            raise GatewayRefused(
                401, "invalid_api_key", "the gateway's key is required as bearer token"
            )

    def admit_outside(self) -> None:
        """Let a call of no exchange reach the world; raises `GatewayRefused` where none may."""
        if self.on_outside is not None:
            self.on_outside()
            raise outside()

    async def serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        answer: Answer,
        *,
        here: bool = False,
        trace: Callable[[bytes], bytes] = lambda _: b"",
    ) -> None:
        """Read a call and answer it, or let the worker of its exchange; a disconnect cancels that.

        `here`: it is known to be this worker's. `trace` returns the trace context that a body
        holds, which takes the place of that in the header: a connection may be older than its
        call; b"" for none.
        """
        memory: BodyMemory = scope["app"].state.body_memory
        body = b""
        try:
            self.admit(scope["headers"])
            body = await memory.read(scope, receive, self.max_body_bytes)
            if traced := trace(body):
                others = [one for one in scope["headers"] if one[0] != TRACE_HEADER]
                scope["headers"] = [*others, (TRACE_HEADER, traced)]
        except (Problem, GatewayRefused) as error:
            await refuse(send, refusal_of(error))
        else:
            answering = self._answer(scope, body, send, answer, here=here)
            work = asyncio.get_running_loop().create_task(answering, name="gateway")
            watch = DisconnectWatch(scope, receive, work.cancel)
            try:
                await asyncio.wait({work})
            finally:
                watch.stop()
                work.cancel()
                await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            memory.release(body)

    async def _answer(
        self, scope: Scope, body: bytes, send: Send, answer: Answer, *, here: bool
    ) -> None:
        try:
            if here or not await self._answered_elsewhere(scope, body, send):
                await answer(scope, body, send)
        except GatewayRefused as error:
            await refuse(send, error)

    async def _answered_elsewhere(self, scope: Scope, body: bytes, send: Send) -> bool:
        """Let the worker of a call's exchange answer, where that is another.

        Raises `GatewayRefused` where another worker passes on what is not open here.
        """
        if self.peers is None or open_runs(self.exchanges, scope) is not None:
            return False
        asked = scope.get("client") is None  # by one of this host, which asks the others itself
        if not asked and await self.peers.answer(scope, body, send):
            return True
        if asked or is_passed_on(scope):
            raise GatewayRefused(NOT_HERE, "not_here", "no such exchange is open here")
        return False


def outside() -> GatewayRefused:
    """Return the refusal of a call that names no open exchange, where only such are answered."""
    why = (
        "the call names no open exchange, and nothing is done for it: pass on the headers "
        "x-cutover-exchange and x-cutover-role of the request it serves, or its traceparent, if no "
        "other open exchange has that"
    )
    return GatewayRefused(404, "unknown_exchange", why)


async def refuse(send: Send, error: GatewayRefused) -> None:
    """Send a refusal."""
    await send_whole(send, error.status, error.headers(), error.body())
