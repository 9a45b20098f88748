"""What sessions are asked over HTTP, and how the flow is deployed for that."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from typer.testing import CliRunner

from cutover.cli import app
from tests.support.deployment import Answer, Setup

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

    from router.serving.stack import Stack
    from router.stack import StackName

CHAT = "/api/v1/chat"
TABLES = {
    "store.sqlite": ("turns", "memories", "graph_checkpoints"),
    "threads.sqlite": ("checkpoints", "writes"),
}


def setup(
    folder: Path,
    percent: float,
    more: str = "",
    stacks: Mapping[StackName, Stack] | None = None,
    shadow: float = 0,
) -> Setup:
    """Keep all that a restart needs in files."""
    store = f"sqlite:///{folder}/store.sqlite"
    section = f"""
[flows.session]
enable_langgraph = true
langgraph_percent = {percent}
shadow_percent = {shadow}

[flows.session.options]
lock_ttl = 1.5
{more}
"""
    return Setup(others=store, locks=store, pins=store, more=section, stacks=stacks)


def body(says: str, session: str | None = None) -> dict[str, Any]:
    """Make a turn in a session, or in a new one."""
    return {"message": says, "user_id": "ann"} | ({"session_id": session} if session else {})


async def say(
    client: aiohttp.ClientSession, url: str, says: str, session: str | None = None
) -> Answer:
    """Be a turn, and read everything."""
    data = msgspec.json.encode(body(says, session))
    async with client.post(url + CHAT, data=data) as response:
        return Answer(response.status, response.headers, await response.read())


async def call(client: aiohttp.ClientSession, method: str, url: str, session: str) -> Answer:
    """Make one of the calls beside: the messages of a session, or its end."""
    place = f"{url}/api/v1/sessions/{session}" + ("/messages" if method == "GET" else "")
    async with client.request(method, place) as response:
        return Answer(response.status, response.headers, await response.read())


def announced(answer: Answer) -> str:
    """Return the session an answer says has begun."""
    assert answer.events[0]["type"] == "session_created"
    return str(answer.events[0]["data"]["session_id"])


def types(answer: Answer) -> list[str]:
    """Return the types of the events, repetitions of text left out."""
    names = [event["type"] for event in answer.events]
    return [name for i, name in enumerate(names) if name != "text" or names[i - 1] != "text"]


def rows(folder: Path) -> dict[str, int]:
    """Count the rows of every table that holds something of a session."""
    return {
        table: int(_asked(folder / file, f"SELECT count(*) FROM {table}")[0][0])
        for file, tables in TABLES.items()
        for table in tables
    }


def turns(folder: Path) -> list[tuple[str, str]]:
    """Read role and content of every turn."""
    query = "SELECT role, content FROM turns ORDER BY seq"
    return [(role, content) for role, content in _asked(folder / "store.sqlite", query)]


def _asked(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as store:
        return store.execute(query).fetchall()


async def typed(*arguments: str) -> int:
    """Type a command; returns its status."""
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code
