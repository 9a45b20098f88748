"""Starts what benches measure, each in a process of its own: the router, nginx, a provider."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

ROUTER = (sys.executable, "-m", "harness", "serve", "--config")
_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream service {{ server {url}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://service; proxy_http_version 1.1; proxy_set_header connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def announced(*module: str) -> AsyncIterator[str]:
    """Run a Python module whose first line of output ends with its address; yield the address."""
    async with running(sys.executable, "-m", *module) as process:
        line = await process.stdout.readline() if process.stdout else b""
        yield line.decode().split()[-1]


@asynccontextmanager
async def configured(
    command: tuple[str, ...], template: str, port: int, **fields: Any
) -> AsyncIterator[psutil.Process]:
    """Run a program with a file of settings, made of `template`, until the block ends.

    The block begins when `port` takes connections.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_text(template.format(port=port, folder=folder, **fields))
        async with running(*command, str(path)) as process:
            await listening(port)
            yield psutil.Process(process.pid)


@asynccontextmanager
async def nginx(url: str, port: int) -> AsyncIterator[dict[str, str]]:
    """Run nginx in front of a service; yield its origin by the name `nginx`, {} without nginx."""
    if not shutil.which("nginx"):
        yield {}
        return
    async with configured(("nginx", "-c"), _NGINX, port, url=url.removeprefix("http://")):
        yield {"nginx": f"http://127.0.0.1:{port}"}


@asynccontextmanager
async def provider(chunk_ms: float) -> AsyncIterator[None]:
    """Start the simulated provider, and point `OPENAI_BASE_URL` at it."""
    options = ("--port", "0", "--chunk-ms", str(chunk_ms))
    async with announced("loadtests.simulator", *options) as base_url:
        os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none"}
        yield


async def listening(port: int) -> None:
    """Wait until a port of this machine takes connections, for 30 s at most."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
