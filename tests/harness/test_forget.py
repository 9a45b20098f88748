"""`cutover forget`: a user or a conversation is gone from every store, and nothing else is."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from langgraph.checkpoint.base import empty_checkpoint
from typer.testing import CliRunner

from cutover.records import PauseRecord, encode
from effects import conversations, rollout
from effects.conversations import Turn
from effects.memory import Memory, namespace, readings
from effects.pauses import Pauses
from effects.world import World
from harness import root
from harness.cli import cli
from harness.commands.forget import STORES, forget
from harness.config import parse
from router.captures import Captures
from tests.router.captures.records import line
from tests.support.databases import postgresql

pytestmark = pytest.mark.slow
SESSION_OF_U, SHARED, SESSION_OF_V = "s-u", "s-shared", "s-v"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/cutover.db"
    else:
        with postgresql() as url:
            yield url


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A world in which two users have a session each, and one together."""
    async with root.opened(parse({"stores": {"database": database_url}})) as opened:
        await fill(opened)
        yield opened


def captures_table(folder: Path) -> dict[str, Any]:
    """Return the table `captures` of a configuration."""
    paths = ["request.user_id"]
    return {"url": str(folder / "captures"), "key": "k" * 16, "redact_paths": paths}


@pytest.fixture
def captured(tmp_path: Path) -> Captures:
    """Lines of an exchange in each session; users are replaced in them."""
    opened = root.captures_of(parse({"captures": captures_table(tmp_path)}))
    assert opened is not None
    assert opened.redactor is not None
    lines = [
        opened.redactor.line(
            line(exchange=f"e-{session}-{user}", flow="session", request=json.dumps(request))
        )
        for session, user in ((SESSION_OF_U, "u"), (SHARED, "v"), (SESSION_OF_V, "v"))
        for request in ({"session_id": session, "user_id": user, "message": "hi u"},)
    ]
    opened.store.add("session", datetime.now(UTC).date(), b"\n".join(map(encode, lines)) + b"\n")
    return opened


async def fill(world: World) -> None:
    """Store what the flows store of users u and v."""
    pauses = Pauses(world.database, world.clock)
    said = [(SESSION_OF_U, "u"), (SHARED, "u"), (SHARED, "v"), (SESSION_OF_V, "v")]
    for number, (session, user) in enumerate(said):
        own: dict[str, Any] = {"flow": "session", "chat_id": session, "content": "hi"}
        await conversations.add(Turn(id=f"a{number}", role="user", user_id=user, **own))
        await conversations.add(Turn(id=f"b{number}", role="assistant", user_id=user, **own))
        memory = Memory(f"m{number}", "likes tea", session_id=session)
        await world.memory.aput(namespace(user), memory.id, memory.value())
        await world.memory.aput(readings(user), session, {"message": "a"})
        await rollout.put_feedback(f"e-{session}-{user}", 1, "fine")
        await rollout.pin("session", session, "graph")
        pause = PauseRecord(
            id=f"p{number}",
            flow="session",
            session=session,
            path="/p",
            stack="graph",
            request=b"{}",
            tape=b"{}",
            question={},
            frames=[],
            expires_at=world.clock() + 60,
        )
        await pauses.store(pause)
        for thread in (session, f"shadow:{session}"):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            await world.threads.aput(config, empty_checkpoint(), {}, {})
    nameless = Turn(id="n", flow="session", chat_id=SESSION_OF_U, role="user", content="unnamed")
    await conversations.add(nameless)
    alone = namespace(f"session:{SESSION_OF_V}")
    await world.memory.aput(alone, "alone", Memory("alone", "has a dog").value())


async def counts(world: World, captured: Captures, user: str, session: str) -> dict[str, int]:
    """Return what a dry run would remove."""
    users, ids = {user} - {""}, {session} - {""}
    done = await forget(world, users, ids, captured, dry_run=True)
    assert done.left == []
    return {name: done.removed[name] for name in STORES}


def table(*numbers: int) -> dict[str, int]:
    """Return how much was removed from each store."""
    return dict(zip(STORES, numbers, strict=True))


OF_U = table(2, 2, 3, 2, 4, 2, 2, 5)
OF_V = table(2, 2, 3, 2, 4, 3, 2, 4)
OF_SHARED = table(1, 1, 2, 1, 2, 2, 2, 4)


@pytest.mark.parametrize(
    ("user", "session", "removed"),
    [("u", "", OF_U), ("", SHARED, OF_SHARED), ("", "", dict.fromkeys(STORES, 0))],
    ids=["user", "conversation", "nobody"],
)
async def test_what_a_dry_run_counts_is_removed_once(
    world: World, captured: Captures, user: str, session: str, removed: dict[str, int]
) -> None:
    """A second run finds nothing, and counting removes nothing."""
    assert await counts(world, captured, user, session) == removed
    assert await counts(world, captured, user, session) == removed
    done = await forget(world, {user} - {""}, {session} - {""}, captured)
    assert {name: done.removed[name] for name in STORES} == removed
    left = await counts(world, captured, user, session)
    assert left == dict.fromkeys(STORES, 0)


async def test_others_keep_what_is_theirs(world: World, captured: Captures) -> None:
    """Their turns in a shared conversation, their memories, and all of their own conversations."""
    assert await counts(world, captured, "v", "") == OF_V
    await forget(world, {"u"}, (), captured)
    shared = await conversations.messages("session", SHARED)
    assert {turn.user_id for turn in shared} == {"v"}
    assert await counts(world, captured, "v", "") == table(1, 1, 1, 1, 2, 3, 2, 4)


@pytest.mark.usefixtures("captured")
def test_the_command_says_what_was_removed(tmp_path: Path) -> None:
    """A table, and an exit status for each way to end."""
    url = f"sqlite+aiosqlite:///{tmp_path}/cutover.db"
    config = tmp_path / "cutover.toml"
    tables = {"stores": {"database": url}, "captures": captures_table(tmp_path)}
    config.write_text(tomlkit.dumps(tables))

    async def filled() -> None:
        async with root.opened(parse({"stores": {"database": url}})) as world:
            await fill(world)

    asyncio.run(filled())

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["forget", "--config", str(config), *arguments])
        return done.exit_code, done.output

    status, shown = run("--user", "u", "--dry-run")
    *table, follows = shown.splitlines()
    assert (status, follows) == (0, "next: the same without --dry-run")
    assert dict(line.split() for line in table) == {name: f"{n}" for name, n in OF_U.items()}
    follows = "next: remove copies elsewhere (docs/privacy.md)\n"
    assert run("--user", "u") == (0, "\n".join([*table, follows]))
    assert run("--user", "u")[0] == 1
    assert run("--conversation", SESSION_OF_V)[0] == 0
    assert run()[0] == 2
    assert run("--user", "")[0] == 2


async def test_turns_that_a_service_holds_are_named() -> None:
    """They cannot be removed, and the command does not say that all is done."""
    tables = {"database": "sqlite+aiosqlite://", "memory_service": "http://127.0.0.1:9"}
    async with root.opened(parse({"stores": tables})) as world:
        done = await forget(world, {"u"}, ())
        assert "the Memory service holds the turns" in done.left[0]
