"""A fleet of routers: the same assignment in every process, after every restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import aiohttp
import msgspec
import pytest

from loadtests.processes import child_environment, module_command
from tests.e2e.fleet_member import CHATS, KEYS, Assigned

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

MEMBERS = 3
SAMPLE = 5


@asynccontextmanager
async def started(folder: Path, run: str, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a member; one that serves is killed, without a chance to tidy up."""
    child = await asyncio.create_subprocess_exec(
        *module_command("tests.e2e.fleet_member", str(folder / "cutover.toml"), run, *more),
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(PYTHONHASHSEED="random"),
        limit=1 << 20,
    )
    try:
        yield child
        if not more:
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def line(child: asyncio.subprocess.Process) -> bytes:
    """Read one line a member says."""
    assert child.stdout is not None
    return await child.stdout.readline()


async def fleet(folder: Path, run: str, percent: int, redis: str, members: int = 1) -> Assigned:
    """Start members at once, and see that they agree and serve so; returns what they say."""
    (folder / "cutover.toml").write_text(
        f"""
[rollout]
salt = "fleet"
pin_seconds = 600.0
[flows.chat]
enable_langgraph = true
langgraph_percent = {percent}
langgraph_fallback = false
[stores]
pins = "sqlite:///{folder}/pins.sqlite"
locks = "{redis}"
""",
        "utf-8",
    )
    more = ("serve",) if members > 1 else ()
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(started(folder, run, *more)) for _ in range(members)
        ]
        said = [msgspec.json.decode(await line(one), type=Assigned) for one in children]
        assert said == [said[0]] * members
        if more:
            urls = [(await line(one)).decode().strip() for one in children]
            assert [await served(url) for url in urls] == [said[0].hashed[:SAMPLE]] * members
        return said[0]


async def served(url: str) -> str:
    """Ask a member under the first route keys; returns who is assigned, a letter each."""
    found = ""
    async with aiohttp.ClientSession() as session:
        for number in range(SAMPLE):
            body = {"message_id": f"key {number}", "content": "Hello"}
            async with session.post(f"{url}/chat/sse", json=body) as response:
                assert response.status == 200
                found += response.headers["x-cutover-assigned"][0]
                await response.read()
    return found


@pytest.fixture
def redis(request: pytest.FixtureRequest) -> str:
    """Return the address of a Redis; without one there is less to see, and under CI it must be."""
    try:
        url: str = request.getfixturevalue("redis_url")
    except pytest.skip.Exception:
        return "process"
    return url


async def test_a_fleet_agrees_over_restarts_and_a_raise_moves_nobody_out(
    tmp_path: Path, redis: str
) -> None:
    """Ten thousand keys at 10 %, again at 10 % after a restart, at 25 % after another one.

    Conversations that are frozen stay where they were, on every router of the fleet, also when
    those who froze them were killed.
    """
    run = uuid4().hex
    first = await fleet(tmp_path, run, 10, redis, MEMBERS)
    assert len(first.hashed) == KEYS
    assert abs(first.hashed.count("g") - KEYS // 10) < 120
    again = await fleet(tmp_path, run, 10, redis)
    assert again == first
    raised = await fleet(tmp_path, run, 25, redis)
    assert abs(raised.hashed.count("g") - KEYS // 4) < 180
    moved_out = [
        (before, after)
        for before, after in zip(first.hashed, raised.hashed, strict=True)
        if before == "g" and after == "l"
    ]
    assert moved_out == []
    assert again.pinned == raised.pinned == first.pinned
    for found in first.pinned.values():
        assert len(found) == CHATS
        assert 0 < found.count("g") < CHATS
