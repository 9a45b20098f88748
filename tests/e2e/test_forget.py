"""`cutover forget` beside a router that serves: an erased user is nowhere any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from psycopg_pool import AsyncConnectionPool
from typer.testing import CliRunner, Result

from cutover.cli import app
from tests.support.deployment import Deployment, Setup, captured, deployed

pytestmark = pytest.mark.sockets

PSEUDONYMS = "CUTOVER_TEST_PSEUDONYMS"
ANN = "ann.secret@example.org"
TOLD = "quinces"


async def forget(place: Deployment, *arguments: str, key: str | None = "a key") -> Result:
    """Type the command."""
    command = ["forget", "--config", str(place.watched.path), *arguments]

    def typed() -> Result:
        return CliRunner().invoke(app, command, env={PSEUDONYMS: key})

    return await asyncio.to_thread(typed)


def setup(folder: Path) -> Setup:
    """Keep everything in files, with a key for the pseudonyms."""
    store = f"sqlite:///{folder}/store.sqlite"
    environ = {PSEUDONYMS: "a key"}
    return Setup(shadow=100, others=store, environ=environ, pseudonym_key_env=PSEUDONYMS)


async def conversing(place: Deployment) -> None:
    """Let ann and ben talk, each in a chat of their own."""
    for number, (user, says) in enumerate([(ANN, TOLD), ("ben", "tea"), (ANN, "more")]):
        body = {"message_id": f"m{number}", "chat_id": f"chat of {user}", "user_id": user}
        answer = await place.ask(body | {"content": f"I like {says}"})
        assert answer.steps[-1] == "END"
    await place.settled()
    await place.services.captures.flush()


def stored(folder: Path) -> bytes:
    """Return the store's files as they are."""
    return b"".join(path.read_bytes() for path in folder.glob("store.sqlite*"))


class _HastyPool(AsyncConnectionPool):
    """A pool that gives a server a moment to be there."""

    async def open(self, wait: bool = False, timeout: float = 0.1) -> None:  # noqa: FBT002, ASYNC109 - as the library has it
        await super().open(wait, min(timeout, 0.1))


async def test_a_user_is_forgotten_while_the_router_serves(tmp_path: Path) -> None:
    """Their exchanges and turns are gone, others' are not, and the router captures on."""
    async with deployed(tmp_path, setup(tmp_path)) as place:
        await conversing(place)
        assert TOLD.encode() in captured(tmp_path)
        assert ANN.encode() not in captured(tmp_path), "the id was redacted"
        result = await forget(place, "--user", ANN)
        assert (result.exit_code, result.output.splitlines()) == (
            0,
            [
                "captures: 2 exchanges, 0 with feedback, 0 long texts",
                "conversations: 4 turns",
                "memory: 0 entries",
                "pauses: 0",
                "audit: 0 names",
                "threads: of 1 sessions",
            ],
        )
        assert TOLD.encode() not in captured(tmp_path)
        assert TOLD.encode() not in stored(tmp_path)
        again = await forget(place, "--user", ANN)
        assert "captures: 0 exchanges" in again.output
        assert "conversations: 0 turns" in again.output
        await place.ask({"message_id": "later", "user_id": "ben", "content": "and coffee"})
        runs = await place.lines()
        assert [(run.role, run.outcome) for run in runs] == [
            ("serving", "completed"),
            ("shadow", "completed"),
        ] * 2


async def test_feedback_is_forgotten_with_its_exchange(tmp_path: Path) -> None:
    """What is sent on it afterwards is taken, and stored nowhere."""
    async with deployed(tmp_path, setup(tmp_path)) as place:

        async def comment(exchange: str, words: str) -> int:
            data = {"exchange_id": exchange, "score": -1, "comment": words}
            async with place.session.post(f"{place.url}/feedback", json=data) as response:
                await place.services.captures.flush()
                return response.status

        ids = {}
        for user in (ANN, "ben"):
            answer = await place.ask({"message_id": user, "user_id": user, "content": "Hello"})
            ids[user] = answer.headers["x-cutover-exchange"]
            assert await comment(ids[user], f"{user} or her friend at {ANN}") == 202
        await place.settled()
        await place.services.captures.flush()
        assert captured(tmp_path, "feedback").count(b"or her friend at <email:") == 2
        result = await forget(place, "--user", ANN)
        assert "captures: 1 exchanges, 1 with feedback" in result.output
        assert await comment(ids[ANN], "once more") == 202
        assert await comment(ids["ben"], "once more") == 202
        left = captured(tmp_path, "feedback")
        assert ids[ANN].encode() not in left
        assert (left.count(ids["ben"].encode()), left.count(b"once more")) == (2, 1)


async def test_a_chat_is_forgotten(tmp_path: Path) -> None:
    """By the id that names it, which no redaction has touched."""
    async with deployed(tmp_path, setup(tmp_path)) as place:
        await conversing(place)
        result = await forget(place, "--chat", "chat of ben", "--plain", key=None)
        assert "captures: 1 exchanges" in result.output
        assert "conversations: 2 turns" in result.output
        assert len(await place.lines()) == 4


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [
        (["--user", ANN], None, f"'{PSEUDONYMS}' is not set"),
        ([], "a key", "one of --user, --chat, --message is due"),
        (["--user", ""], "a key", "one of --user"),
        (["--user", ANN, "--chat", "c"], "a key", "one of --user"),
    ],
)
async def test_what_cannot_be_done_whole_is_refused(
    tmp_path: Path, arguments: list[str], key: str | None, words: str
) -> None:
    """One sentence, exit status 2, and everything is still there."""
    async with deployed(tmp_path, setup(tmp_path)) as place:
        await conversing(place)
        result = await forget(place, *arguments, key=key)
        assert result.exit_code == 2
        assert words in result.output
        assert len(result.output.splitlines()) == 1
        assert len(await place.lines()) == 6
        assert TOLD.encode() in stored(tmp_path)


def test_a_service_that_keeps_the_conversations_is_named(tmp_path: Path) -> None:
    """The rest is done, and the status says that it is not all."""
    path = tmp_path / "cutover.toml"
    path.write_text(
        f'[captures]\npath = "{tmp_path}/captures"\n'
        f'[stores]\nconversations = "http://localhost:1/turns"\n'
        f'memory = "sqlite:///{tmp_path}/absent/memory.db"\npauses = "memory://"\n'
    )
    command = ["forget", "--config", str(path), "--user", "ann", "--plain"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "not removed: conversations: kept by a service" in result.output
    assert "conversations: 0" not in result.output
    assert "memory: 0 entries" in result.output, "there is no file: that is known"
    assert list(tmp_path.iterdir()) == [path], "nothing is made by forgetting"


def test_a_store_out_of_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No count is told of it, nor of threads whose chats it alone knows; no password either."""
    monkeypatch.setattr("effects.stores.postgres.AsyncConnectionPool", _HastyPool)
    threads = tmp_path / "threads.sqlite"
    threads.touch()
    path = tmp_path / "cutover.toml"
    path.write_text(
        f'[captures]\npath = "{tmp_path}/captures"\n'
        '[stores]\nconversations = "env:DB"\nmemory = "env:DB"\npauses = "memory://"\n'
        f'checkpoints = "sqlite:///{threads}"\n'
    )
    command = ["forget", "--config", str(path), "--user", "ann", "--plain"]
    closed = {"DB": "postgresql://u:s3cr3t@127.0.0.1:1/x"}
    result = CliRunner().invoke(app, command, env=closed)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "captures: 0 exchanges, 0 with feedback, 0 long texts",
        "pauses: 0",
        "audit: 0 names",
    ]
    assert [line for line in result.stderr.splitlines() if line.startswith("not removed")] == [
        "not removed: conversations: the store cannot be reached (store_unavailable)",
        "not removed: memory: the store cannot be reached (memory_unavailable)",
        "not removed: threads: of which chats is not known without the conversations; come again",
    ]
    assert "s3cr3t" not in result.output
    assert threads.stat().st_size == 0
