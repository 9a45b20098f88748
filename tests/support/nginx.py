"""nginx before several servers, and a TCP connection that a test can cut."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.conftest import reachable
from tests.support.processes import Program, free_port

SHIPPED = Path(__file__).resolve().parent.parent.parent / "deploy" / "nginx.conf"
MAIN = """
daemon off; worker_processes 1; pid nginx.pid; error_log error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; add_header x-upstream $upstream_addr always;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  {server}
}}
"""
AGAIN = "proxy_next_upstream error timeout"


@asynccontextmanager
async def balanced(folder: Path, ports: list[int]) -> AsyncIterator[str]:
    """Run nginx before servers of this machine, as deploy/nginx.conf says; yield its URL.

    What a server that drains refuses is asked of another one, by the words which that file names.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    reachable("nginx", ok=program is not None)
    config = folder / "nginx.conf"
    command = (str(program), "-e", "error.log", "-p", str(folder), "-c", str(config))
    nginx = Program(folder, command=command)
    servers = "".join(f"server 127.0.0.1:{one} max_fails=1 fail_timeout=1s;" for one in ports)
    server = re.sub(r"( *server router-\d:8080;\n)+", servers, SHIPPED.read_text("utf-8"))
    server = server.replace("listen 80;", f"listen 127.0.0.1:{nginx.port};")
    server = server.replace(AGAIN, f"{AGAIN} http_503 non_idempotent")
    config.write_text(MAIN.format(server=server))
    async with nginx:
        yield nginx.url


@dataclass
class Relay:
    """Passes connections on to a server of this machine, until it is `cut`.

    Cut, it refuses connections; or it takes them and says nothing (`silent`).
    """

    to: int
    port: int = field(default_factory=free_port)
    silent: bool = False
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _passing: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def restore(self) -> None:
        """Pass connections on again."""
        await self.cut()
        self.silent = False
        await self._listen()

    async def cut(self, *, silent: bool = False) -> None:
        """Break all connections, and refuse new ones or leave them without an answer."""
        if self._server is not None:
            self._server.close()
        self._server = None
        for writer in tuple(self._open):
            writer.transport.abort()
        if self._passing:
            await asyncio.wait(set(self._passing))
        if silent:
            self.silent = True
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        self._open.add(writer)
        writers = [writer]
        try:
            if self.silent:
                await reader.read()
                return
            there, onward = await asyncio.open_connection("127.0.0.1", self.to)
            self._open.add(onward)
            writers.append(onward)
            await asyncio.gather(_pass(reader, onward), _pass(there, writer))
        finally:
            for one in writers:
                one.transport.abort()
                self._open.discard(one)
            self._passing.discard(task)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.transport.abort()
