"""Clients that ask and do not read, on real sockets: their connections are dropped."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from router.stack import StackName
from tests.support.deployment import Deployment, Setup, deployed, until

pytestmark = pytest.mark.sockets

ROOM = 65_536
LONG = f"""
[limits]
loop_seconds = 0.0
unsent_bytes = {ROOM}
send_seconds = 0.25

[models.long]
provider = "simulated"
model = "sim-chat?rate=100000&tokens=3000&limit=3000"
"""


def asked(place: Deployment) -> socket.socket:
    """Ask for a long answer, on a connection with little room of its own."""
    body = msgspec.json.encode(
        {"message_id": "m", "content": "Hello", "model_config": {"model_id": "long"}}
    )
    head = f"POST /chat/sse HTTP/1.1\r\nhost: router\r\ncontent-length: {len(body)}\r\n\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    at = urlsplit(place.url)
    client.connect((at.hostname, at.port))
    client.sendall(head.encode() + body)
    return client


@pytest.mark.untraced
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_who_does_not_read_is_dropped_and_costs_little(
    tmp_path: Path, stack: StackName, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is dropped, not closed behind what waits; few frames were ever made."""
    async with deployed(tmp_path, Setup(stack=stack, more=LONG)) as place:
        with asked(place) as client:
            counts = place.services.router.counts
            await until(lambda: bool(counts.slow_clients))
            run = await place.run()
            assert (run.outcome, run.error and run.error.code) == ("cancelled", "client_unread")
            assert sum(len(text) for _, text in run.frames) < 1_500_000
            assert not (await asyncio.to_thread(_rest, client)).endswith(b"0\r\n\r\n")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _rest(client: socket.socket) -> bytes:
    with client.makefile("rb") as stream:
        return stream.read()
