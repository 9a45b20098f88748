"""Calls of MCP clients that may be cancelled by a message, as before version 2026-07-28.

The ids of calls are each client's own. A session, given at the handshake and otherwise without
meaning, tells whose they are.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from router.stack import Headers, header_of

SESSION_HEADER: Final = b"mcp-session-id"


class _Parameters(msgspec.Struct):
    request: str | int | None = msgspec.field(default=None, name="requestId")


class _Message(msgspec.Struct):
    method: str = ""
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw()


_decode: Final = msgspec.json.Decoder(_Message).decode
_decode_parameters: Final = msgspec.json.Decoder(_Parameters).decode


class OpenCall:
    """A call that is answered; `begins` is the session that begins with it, if any."""

    def __init__(self, begins: bytes = b"") -> None:
        self.begins = begins
        self.cancelled = False
        self._task = asyncio.current_task()

    def cancel(self) -> None:
        """Cancel it, by a message of its client."""
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """Take the cancellation as done."""
        if self._task is not None:
            self._task.uncancel()


class Cancellations:
    """The calls that are answered in this process, by session and id."""

    def __init__(self) -> None:
        self._calls: dict[tuple[bytes, str | int], OpenCall] = {}

    def take(self, headers: Headers, body: bytes) -> bool:
        """Cancel the call that a message cancels; False where it is another message."""
        message = _read(body)
        if message.method != "notifications/cancelled":
            return False
        try:
            request = _decode_parameters(message.params).request
        except msgspec.DecodeError:
            return False
        call = self._calls.get((header_of(headers, SESSION_HEADER), request or 0))
        if call is not None:
            call.cancel()
        return True

    @contextmanager
    def opened(self, headers: Headers, body: bytes) -> Iterator[OpenCall]:
        """Let a call of this task be cancelled in a block."""
        message, session = _read(body), header_of(headers, SESSION_HEADER)
        if not session or message.id is None:
            begins = message.method == "initialize"
            yield OpenCall(secrets.token_hex(16).encode() if begins else b"")
            return
        name, call = (session, message.id), OpenCall()
        self._calls[name] = call
        try:
            yield call
        finally:
            if self._calls.get(name) is call:
                del self._calls[name]


def _read(body: bytes) -> _Message:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Message()
