"""Providers that fail: honest failure frames, no takeover, a clear log line, no secret told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from router.stack import StackName
from tests.support.deployment import PLANTED_KEY, Setup, deployed

pytestmark = pytest.mark.sockets

BEFORE_TEXT = ["ACCEPT", "START_REPLY", "FAILED", "END"]
AFTER_TEXT = ["ACCEPT", "START_REPLY", "SEND", "FAILED", "END"]
FAULTS = {
    "unreachable": ("closed", "sim-chat", "model_unavailable", BEFORE_TEXT),
    "garbage": ("garbage", "sim-chat", "model_truncated", BEFORE_TEXT),
    "wrong key": ("keyless", "sim-chat", "model_auth", BEFORE_TEXT),
    "no money": ("simulated", "ending=http_error&status=429", "model_rate_limited", BEFORE_TEXT),
    "broken": ("simulated", "ending=http_error&status=500", "model_unavailable", BEFORE_TEXT),
    "silent": ("silent", "ending=silent", "model_timeout_first_byte", BEFORE_TEXT),
    "headers only": (
        "tokenless",
        "ending=silent&headers=1",
        "model_timeout_first_token",
        BEFORE_TEXT,
    ),
    "stalled": ("idle", "ending=stall&after=5", "model_timeout_idle", AFTER_TEXT),
    "cut": ("simulated", "ending=cut&after=5", "model_truncated", AFTER_TEXT),
    "error inside": ("simulated", "ending=error_event&after=5", "model_error", AFTER_TEXT),
    "reset": ("simulated", "ending=reset", "model_unavailable", BEFORE_TEXT),
}


def more(closed: int, garbage: int) -> str:
    """Configure providers that fail, and a model for every fault."""
    providers = f"""
[rescue]
first_wait_seconds = 0.001
[providers.closed]
base_url = "http://127.0.0.1:{closed}/v1"
key_env = "CUTOVER_TEST_KEY"
[providers.garbage]
base_url = "http://127.0.0.1:{garbage}/v1"
key_env = "CUTOVER_TEST_KEY"
[providers.keyless]
base_url = "PROVIDER"
[providers.silent]
base_url = "PROVIDER"
key_env = "CUTOVER_TEST_KEY"
first_byte_seconds = 0.05
[providers.tokenless]
base_url = "PROVIDER"
key_env = "CUTOVER_TEST_KEY"
first_byte_seconds = 60.0
first_token_seconds = 0.05
[providers.idle]
base_url = "PROVIDER"
key_env = "CUTOVER_TEST_KEY"
idle_seconds = 0.05
"""
    models = [
        f'[models."{name}"]\nprovider = "{provider}"\nmodel = "{_model(asked)}"\n'
        for name, (provider, asked, _, _) in FAULTS.items()
    ]
    return providers + "".join(models)


def _model(asked: str) -> str:
    return asked if asked == "sim-chat" else f"sim-chat?{asked}"


@asynccontextmanager
async def babbling() -> AsyncIterator[int]:
    """Serve what is HTTP, but no answer of a provider; returns the port."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = b"<html>\xff\x00 data: {not json}\n\ndata: {broken\n\n</html>"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" + page
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_failing_provider_is_told_honestly(
    tmp_path: Path, stack: StackName, unused_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """FAILED with a stable code, then END; the other stack is not asked to do better."""
    async with babbling() as garbage:
        setup = Setup(stack=stack, more=more(unused_port, garbage))
        async with deployed(tmp_path, setup) as place:
            for name, (_, _, code, steps) in FAULTS.items():
                caplog.clear()
                chosen = {"model_config": {"model_id": name}}
                answer = await place.ask({"message_id": name, "content": "Hello"} | chosen)
                assert (answer.status, answer.steps) == (200, steps), name
                assert answer.events[-2] == {"step": "FAILED", "code": code}, name
                await place.settled()
                told = [one for one in caplog.records if one.levelno >= logging.WARNING]
                assert any(code in one.getMessage() for one in told), name
                assert PLANTED_KEY not in caplog.text + answer.body.decode(), name
            runs = await place.lines()
            assert {(run.role, run.outcome) for run in runs} == {("serving", "failed")}
            assert place.services.router.counts.takeovers == 0
            assert place.services.router.counts.fallbacks == 0
