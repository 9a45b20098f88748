"""`cutover doctor` looks into every store: one sentence for each reason, no secret, no trace."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import psycopg
import pytest

from contract.flows import SPECS
from cutover.doctor import examine
from effects.memory import open_memory
from effects.memory.sqlite import MEMORY
from effects.stores import MemoryConversations, SqlConversations
from effects.stores.http import conversation_service
from effects.stores.tables import CONVERSATIONS
from router.config.loader import parse_settings
from tests.support.asgi import served

pytestmark = pytest.mark.sockets

PASSWORD = "s3cr3t"
KNOWN = MEMORY.version


async def check(part: str, address: str) -> tuple[bool, str]:
    """Examine a set-up with one store there; returns whether it is well, and why."""
    text = f'[stores]\nhistory = ""\n{part} = "env:PLACE"'
    settings = parse_settings(text, "cutover.toml", SPECS)
    environ = {"PLACE": address, "OPENAI_API_KEY": "none"}
    (found,) = [one for one in await examine(settings, environ) if one.part == f"stores.{part}"]
    assert PASSWORD not in found.detail
    assert found.detail.startswith("env:PLACE: ")
    return found.ok, found.detail.removeprefix("env:PLACE: ")


def names(folder: Path) -> list[str]:
    """Name what stands in a folder."""
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize(
    ("version", "good", "said"),
    [
        (KNOWN, True, f"opened, tables of version {KNOWN}"),
        (1, True, f"opened, tables of version 1: the router will bring them to {KNOWN}"),
        (0, True, "opened, without tables yet"),
        (99, False, f"its tables are version 99, this code knows {KNOWN}"),
    ],
)
async def test_the_version_of_a_file_is_told(
    tmp_path: Path,
    version: int,
    good: bool,
    said: str,
) -> None:
    """A newer one would keep the router from starting; nothing is made beside the file."""
    path = tmp_path / "store.sqlite"
    async with open_memory(path):
        pass
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE schema_versions SET version = ?", (version,))
    before = path.read_bytes(), names(tmp_path)
    assert await check("memory", f"sqlite:///{path}") == (good, said)
    assert (path.read_bytes(), names(tmp_path)) == before


async def test_a_file_a_router_has_open_is_looked_into(tmp_path: Path) -> None:
    """As it stands, what is not in the file itself yet included."""
    path = tmp_path / "store.sqlite"
    async with open_memory(path):
        before = names(tmp_path)
        told = f"opened, tables of version {KNOWN}"
        assert await check("memory", f"sqlite:///{path}") == (True, told)
        assert names(tmp_path) == before


async def test_the_audit_is_looked_for_where_the_pauses_are(tmp_path: Path) -> None:
    """Unless it is configured."""
    where = f"sqlite:///{tmp_path}/pauses.sqlite"
    for audit, shown in ((None, where), ("memory://", "memory://: for the life of one process")):
        stores = f'[stores]\nhistory = ""\npauses = "{where}"\n'
        if audit is not None:
            stores += f'audit = "{audit}"'
        settings = parse_settings(stores, "cutover.toml", SPECS)
        examined = await examine(settings, {"OPENAI_API_KEY": "none"})
        (found,) = [one for one in examined if one.part == "stores.audit"]
        assert (found.ok, found.detail) == (True, shown)


async def test_the_shared_state_is_looked_for_where_the_locks_are(tmp_path: Path) -> None:
    """Unless it is configured; a history that is not is no store of one process."""
    where = f"sqlite:///{tmp_path}/locks.sqlite"
    for more, shown in (("", where), ('shared_state = "process"', "process")):
        text = f'[stores]\nhistory = ""\nlocks = "{where}"\n{more}'
        settings = parse_settings(text, "cutover.toml", SPECS)
        examined = await examine(settings, {"OPENAI_API_KEY": "none"})
        details = {one.part: one.detail for one in examined}
        assert details["stores.shared_state"].removesuffix(": for the life of one process") == shown
        assert details["stores.history"] == "none is configured"


async def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    """Something else stands there, or nothing that can be opened."""
    path = tmp_path / "store.sqlite"
    path.write_text("something else, and long enough to be looked at " * 9)
    assert await check("pauses", f"sqlite:///{path}") == (False, "the file is no SQLite database")
    assert await check("pauses", f"sqlite:///{tmp_path}") == (False, "the file cannot be opened")


async def test_a_database_is_opened(dsn: str) -> None:
    """With its version, and without a table made."""
    assert await check("conversations", dsn) == (True, "opened, without tables yet")
    assert await check("conversations", dsn) == (True, "opened, without tables yet"), "none made"
    async with SqlConversations.open(dsn):
        pass
    opened = f"opened, tables of version {CONVERSATIONS.version}"
    assert await check("conversations", dsn) == (True, opened)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("UPDATE schema_versions SET version = 99")
    newer = f"its tables are version 99, this code knows {CONVERSATIONS.version}"
    assert await check("conversations", dsn) == (False, newer)
    assert await check("checkpoints", dsn) == (True, "opened")


async def test_a_database_that_cannot_be_used_is_told(postgres_dsn: str) -> None:
    """Each reason has its sentence."""
    for name, value, said in (
        ("dbname", f"none_{PASSWORD}", "it has no such database"),
        ("user", f"nobody_{PASSWORD}", "it has no such role"),
        ("options", "-csearch_path=nowhere", "none of the schemas to look in is there"),
    ):
        there = psycopg.conninfo.conninfo_to_dict(postgres_dsn) | {name: value}
        address = f"postgresql://{there['user']}:{PASSWORD}@127.0.0.1:{there['port']}/"
        address += f"{there['dbname']}?options={quote(str(there.get('options', '')))}"
        assert await check("memory", address) == (False, said)


@contextmanager
def refusing(*answers: bytes) -> Iterator[int]:
    """Listen for one client, answer what it says so and hang up; gives the port."""

    def serve(server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            for answer in answers:
                client.recv(65_536)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = Thread(target=serve, args=(server,))
        serving.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            serving.join()


async def test_a_refused_password_is_told() -> None:
    """Neither it, nor whose it is."""
    fields = b'SFATAL\0C28P01\0Mpassword authentication failed for user "s3cr3t"\0\0'
    error = b"E" + (len(fields) + 4).to_bytes(4, "big") + fields
    with refusing(b"N", error) as port:
        assert await check("pauses", f"postgresql://u:{PASSWORD}@127.0.0.1:{port}/x") == (
            False,
            "its password is refused",
        )
    with refusing(b"-WRONGPASS invalid username-password pair s3cr3t\r\n") as port:
        refused = await check("locks", f"redis://u:{PASSWORD}@127.0.0.1:{port}/0")
    assert refused == (False, "its password is refused, or it asks for one")


@pytest.mark.parametrize(
    ("part", "scheme", "module"),
    [("memory", "postgresql", "postgres"), ("locks", "redis", "redis")],
)
async def test_a_server_that_says_nothing_is_told(
    part: str, scheme: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections: that is not enough."""
    monkeypatch.setattr(f"effects.stores.{module}.CHECK_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ok, detail = await check(part, f"{scheme}://u:{PASSWORD}@127.0.0.1:{port}/0")
    assert not ok
    assert detail.startswith("takes connections and says nothing")


async def test_no_server_is_reported(unused_port: int) -> None:
    """With the place, and without the rest of the address."""
    for part, scheme in (("memory", "postgresql"), ("locks", "redis")):
        _, detail = await check(part, f"{scheme}://u:{PASSWORD}@127.0.0.1:{unused_port}/0")
        assert detail == f"no server listens at 127.0.0.1:{unused_port}"


async def test_the_broker_of_shadows_is_asked(redis_url: str, unused_port: int) -> None:
    """Where there is one."""
    for broker, good in ((redis_url, True), (f"redis://127.0.0.1:{unused_port}/0", False)):
        settings = parse_settings(f'[shadow]\nbroker = "{broker}"\n', "cutover.toml", SPECS)
        examined = await examine(settings, {"OPENAI_API_KEY": "none"})
        (found,) = [one for one in examined if one.part == "shadow.broker"]
        assert found.ok is good, found.detail


async def test_a_redis_is_asked(redis_url: str) -> None:
    """It answers, or has no such database."""
    assert await check("locks", redis_url) == (True, "answers")
    ok, detail = await check("locks", f"{redis_url}?db=99999")
    assert not ok
    assert "no such database" in detail


@pytest.mark.parametrize(
    ("token", "good", "said"),
    [
        (PASSWORD, True, "answers"),
        ("another", False, "it should answer 404 to an unknown message, not 401"),
    ],
)
async def test_a_service_is_asked_for_a_message(
    token: str,
    good: bool,
    said: str,
) -> None:
    """With the token that is configured."""
    async with served(conversation_service(MemoryConversations(), PASSWORD)) as url:
        text = f'[stores]\nhistory = ""\nconversations = "{url}"\n[conversations]\ntoken_env = "T"'
        settings = parse_settings(text, "cutover.toml", SPECS)
        checks = {one.part: one for one in await examine(settings, {"T": token})}
    found = checks["stores.conversations"]
    assert found.ok == good
    assert found.detail.startswith(f"{url}: {said}")
    assert checks["conversations.token_env"].ok
    assert not any(token in one.detail for one in checks.values())
