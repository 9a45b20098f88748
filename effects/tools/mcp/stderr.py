"""What a started server says on its standard error, for the log."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger(__name__)

LONGEST_LINE = 1_000
"""Bytes of a line that are told."""


class Lines(asyncio.Protocol):
    """Tells the log each line as it comes; of a long one its beginning."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._told = False

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._tell(line)
            self._told = False
        if len(rest) > LONGEST_LINE:
            self._tell(rest)
            self._told, rest = True, b""
        self._rest = rest

    def eof_received(self) -> None:
        """Take the end: what came last may lack the end of its line."""
        self._tell(self._rest)
        self._rest = b""

    def _tell(self, line: bytes) -> None:
        text = line[:LONGEST_LINE].decode("utf-8", "replace").strip()
        if text and not self._told:
            log.info("MCP server %r: %s", self._name, text)


@asynccontextmanager
async def stderr_of(name: str) -> AsyncIterator[TextIO]:
    """Give a file whose lines go to the log."""
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: Lines(name), os.fdopen(reading, "rb", 0))
    try:
        with os.fdopen(writing, "w") as file:
            yield file
    finally:
        # A child of the server's may hold the other end: its words are nobody's any more.
        await asyncio.sleep(0)
        transport.close()
