"""Questions to a client of MCP, on the stream of its own call; it posts its answers.

Clients of versions before 2026-07-28 answer requests of the server by a message of its own. The
gateway has no sessions: what tells the answer's question is an id that cannot be guessed.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED
from starlette.types import Message, Send

from router.gateway.cancellations import SESSION_HEADER

ANSWER_SECONDS: Final = 600.0
"""How long a client may take to answer."""
_PREFIX: Final = "cutover-question-"
_EVENTS: Final = b"text/event-stream"


class _Answer(msgspec.Struct):
    id: str
    result: msgspec.Raw = msgspec.Raw()
    error: dict[str, Any] | None = None
    method: str | None = None


_decode: Final = msgspec.json.Decoder(_Answer).decode


class BackChannel:
    """The questions to clients that are open in this process."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[_Answer]] = {}

    def take(self, body: bytes) -> bool:
        """Take a message that may be an answer; False where it is anything else."""
        if _PREFIX.encode() not in body:
            return False
        try:
            answer = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if answer.method is not None or not answer.id.startswith(_PREFIX):
            return False
        waiting = self._open.get(answer.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        return True

    async def ask(self, stream: AnswerStream, method: str, params: Any) -> Any:
        """Ask a client on the stream that answers its call; raises `MCPError`, also its own."""
        name = f"{_PREFIX}{secrets.token_hex(16)}"
        waiting = self._open[name] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": name, "method": method, "params": params}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await stream.send_event(msgspec.json.encode(message))
                answer = await waiting
        except TimeoutError:
            raise MCPError(CONNECTION_CLOSED, "the client did not answer the question") from None
        finally:
            del self._open[name]
        if answer.error is not None:
            code, why = answer.error.get("code"), answer.error.get("message")
            raise MCPError(code if isinstance(code, int) else CONNECTION_CLOSED, str(why))
        return msgspec.json.decode(answer.result or b"null")


class AnswerStream:
    """The answer to one call, as its transport sends it; a stream of events takes more of them.

    A `session` that begins with it is told to the client.
    """

    def __init__(self, send: Send, session: bytes = b"") -> None:
        self._send = send
        self._session = session
        self._begun = asyncio.Event()
        self._ended = False

    async def __call__(self, message: Message) -> None:
        """Send a message of the transport."""
        if self._session and message["type"] == "http.response.start":
            named = (SESSION_HEADER, self._session)
            message = {**message, "headers": [*message["headers"], named]}
        await self._send(message)
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            if kinds and kinds[0].startswith(_EVENTS):
                self._begun.set()

    async def end(self) -> None:
        """End a stream of events that has no answer."""
        if self._begun.is_set() and not self._ended:
            await self._send({"type": "http.response.body", "body": b""})

    async def send_event(self, data: bytes) -> None:
        """Send an event between those of the transport, which sends each in one piece."""
        await self._begun.wait()
        body = b"event: message\r\ndata: %b\r\n\r\n" % data
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
