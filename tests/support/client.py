"""A client of the application, without sockets: it posts, reads, and leaves in several ways."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI


@dataclass
class Client:
    """A client of the application; it leaves after `leaves_after` pieces, or one with `leaves_at`.

    `how`: it leaves, it reads nothing more, its connection breaks, or the server cancels the
    request as it stops.
    """

    app: FastAPI
    leaves_after: int | None = None
    leaves_at: bytes | None = None
    how: str = "leaves"
    sends: dict[str, str] = field(default_factory=dict)
    """Headers."""
    sends_body: bool = True
    peer: str = "127.0.0.1"
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    async def post(
        self, path: str, body: Any, media: str = "application/json", method: str = "POST"
    ) -> bytes:
        """Post a body and return the response's."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [
                (b"content-type", media.encode()),
                *((name.encode(), value.encode()) for name, value in self.sends.items()),
            ],
            "client": (self.peer, 1),
            "server": ("127.0.0.1", 80),
        }
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent and self.sends_body:
                sent = True
                return {"type": "http.request", "body": raw, "more_body": False}
            await self._left.wait()
            if self.how == "breaks":
                raise ConnectionResetError
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            elif message.get("body"):
                self.pieces.append(message["body"])
                last = self.leaves_at is not None and self.leaves_at in message["body"]
                if last or len(self.pieces) == self.leaves_after:
                    await self._end()

        await self.app(scope, receive, send)
        return b"".join(self.pieces)

    def leave(self) -> None:
        """Leave now."""
        self._left.set()

    async def _end(self) -> None:
        if self.how == "stopped":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return
        if self.how == "stalls":
            await asyncio.Event().wait()
        self.leave()
        if self.how == "breaks":
            await asyncio.sleep(0)
            raise ConnectionResetError
