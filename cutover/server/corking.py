"""Corking: what is written to a connection in one turn of the loop goes out together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 16_384
"""Bytes that are not held for others: whoever writes much is to learn that nobody reads it."""


class Corked(asyncio.Transport):
    """A transport that holds what is written until the loop's next turn.

    The head of an answer and its first event leave in one packet, by one call of the kernel.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._held: list[bytes] = []
        self._size = 0
        # Delegated as they are: they are asked for every event.
        self.is_closing: Callable[[], bool] = transport.is_closing
        self._soon = asyncio.get_running_loop().call_soon

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Tell about the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read nothing for the time being."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._transport.set_protocol(protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, with what else is written in this turn."""
        if not self._held:
            self._soon(self.flush)
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size >= AT_ONCE:
            self.flush()

    def write_now(self, data: bytes) -> None:
        """Write without waiting for more."""
        if self._held:
            self._held.append(data)
            self.flush()
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            held, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(held))

    def close(self) -> None:
        """Close it once all has been written."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Drop it with all that waits."""
        self._held.clear()
        self._transport.abort()
