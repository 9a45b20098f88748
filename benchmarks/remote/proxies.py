"""Proxies in front of the service: a router, and nginx where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.harness import BenchServer, serving
from contract.errors import CutoverError

PATIENCE_S = 10.0


class NginxDidNotStart(CutoverError):
    """nginx is installed and does not listen."""

    def __init__(self, complaint: str) -> None:
        super().__init__(f"nginx did not start; its log: {complaint!r}")


@contextmanager
def routing(name: str, folder: Path, upstream: str, *, shadow: bool) -> Iterator[BenchServer]:
    """Serve a router with both stacks at `upstream`, everything captured, mirrored if `shadow`."""
    own = folder / name
    own.mkdir()
    (own / "cutover.toml").write_text(
        f"""
[stacks]
legacy = "{upstream}/"
graph = {{ url = "{upstream}/", shadow_safe = true }}

[flows.chat]
enable_langgraph = true
shadow_percent = {100 if shadow else 0}

[captures]
path = "{own}/captures"

[stores]
conversations = "memory://"
memory = "memory://"
pauses = "memory://"
""",
        "utf-8",
    )
    options = ("serve", "--config", str(own / "cutover.toml"), "--port", "0")
    with serving(name, "cutover", *options, log=own / "log") as server:
        yield server


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[tuple[BenchServer, BenchServer] | None]:
    """Run nginx with one worker: one address passes streams on, the other mirrors them as well.

    Yields None where nginx is not installed.
    """
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin") or shutil.which(
        "nginx"
    )
    if program is None:
        yield None
        return
    own = folder / "nginx"
    own.mkdir()
    ports = _free_ports(2)
    (own / "nginx.conf").write_text(_configuration(own, upstream, ports), "utf-8")
    command = [program, "-p", str(own), "-c", str(own / "nginx.conf")]
    with (own / "log").open("ab") as log, subprocess.Popen(command, stderr=log) as process:  # noqa: S603 - found on the path
        try:
            for port in ports:
                _await(port, own / "log")
            passing, mirroring = (f"http://127.0.0.1:{port}" for port in ports)
            yield (
                BenchServer("nginx", passing, process.pid),
                BenchServer("mirror", mirroring, process.pid),
            )
        finally:
            process.terminate()


def _configuration(own: Path, upstream: str, ports: list[int]) -> str:
    places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "\n".join(f"    {place}_temp_path {own}/{place};" for place in places)
    every = """
        keepalive_requests 10000000;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_buffering off;
"""
    return f"""
worker_processes 1;
daemon off;
pid {own}/pid;
error_log {own}/log;
events {{ worker_connections 8192; }}
http {{
    access_log off;
{folders}
    upstream service {{ server {urlsplit(upstream).netloc}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{ports[0]};{every}
        location / {{ proxy_pass http://service; }}
    }}
    server {{
        listen 127.0.0.1:{ports[1]};{every}
        location / {{ mirror /mirror; proxy_pass http://service; }}
        location = /mirror {{ internal; proxy_pass http://service$request_uri; }}
    }}
}}
"""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _await(port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise NginxDidNotStart(log.read_text("utf-8", "replace")[-500:])
