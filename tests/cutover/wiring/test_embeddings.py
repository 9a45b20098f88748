"""What the memory finds by: configured, opened, and said by `cutover doctor`."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import uuid4

import psycopg
import pytest

from contract.flows import SPECS
from contract.stores import MemoryEntry, Recall
from cutover.doctor import check_part, describe_recall
from cutover.stores import open_memory
from cutover.wiring.models import KeyMissing, open_embedder
from effects.memory.embeddings import maker
from effects.memory.fake import HashedEmbedder
from effects.memory.local_embeddings import LocalEmbedder
from effects.memory.search import LongTermMemory
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import Settings
from tests.cutover import test_doctor
from tests.cutover.test_doctor import GOOD, doctor
from tests.support.asgi import served
from tests.support.embedding_server import asked, hashing
from tests.support.postgres import own_schema

READER = "pg_read_all_settings"
"""A role every server has, that may make nothing."""
ENDPOINT = """
[embeddings]
base_url = "http://127.0.0.1:{port}/v1"
model = "small"
dimensions = 64
"""


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ('base_url = "http://h/v1"\ndimensions = 8', "embeddings.model"),
        ('base_url = "http://h/v1"\nmodel = "m"', "embeddings.dimensions"),
        ('base_url = "http://h"\nmodel = "m"\ndimensions = 8\nlocal = true', "embeddings.local"),
        ('base_url = "h"', "embeddings.base_url"),
        ('base_url = "http://u:hush@h/"', "embeddings.base_url"),
        ('key_env = "sk-0123"', "embeddings.key_env"),
        ("least_similarity = 1.5", "embeddings.least_similarity"),
        ("locale = true", "embeddings.locale"),
    ],
)
def test_half_a_configuration_is_refused(lines: str, key: str) -> None:
    """With the key that is wrong."""
    with pytest.raises(ConfigRefused, match=key) as refused:
        parse_settings(f"[embeddings]\n{lines}", "file", SPECS)
    assert "hush" not in str(refused.value)


async def recall(settings: Settings, environ: dict[str, str]) -> tuple[bool, str]:
    """Return whether the memory searches by what is configured, and what is said of it."""
    found = await check_part("recall", describe_recall(settings, environ))
    return found.ok, found.detail


@pytest.mark.sockets
async def test_a_memory_finds_by_what_is_configured(tmp_path: Path) -> None:
    """From the file to the nearest entry, by way of the endpoint."""
    async with served(asked(hashing(), [])) as url, AsyncExitStack() as stack:
        text = ENDPOINT.replace("http://127.0.0.1:{port}", url)
        section = parse_settings(text + 'key_env = "K"', "file", SPECS).embeddings
        with pytest.raises(KeyMissing, match="'embeddings' needs its key in the variable 'K'"):
            await open_embedder(section, {}, stack)
        embedder = await open_embedder(section, {"K": "sk-1"}, stack)
        assert embedder is not None
        assert maker(embedder) == "small/64"
        memory = await open_memory(f"sqlite:///{tmp_path}/m.db", stack, embedder)
        assert isinstance(memory, LongTermMemory)
        entry = MemoryEntry(memory_id="1", user_id="u", text="likes tea", at=1)
        await memory.write("w", (entry,))
        assert await memory.recall("r", Recall(user_id="u", query="teas")) == (entry,)
        assert memory.recalls == {"vectors": 1}


async def test_nothing_configured_is_full_text() -> None:
    """And no embedder is opened."""
    settings = parse_settings("", "file", SPECS)
    async with AsyncExitStack() as stack:
        assert await open_embedder(settings.embeddings, {}, stack) is None
    assert await recall(settings, {}) == (True, "full text: [embeddings] names no model")


@pytest.mark.slow
async def test_the_local_model_needs_no_network(tmp_path: Path) -> None:
    """Two words about the same thing, in Chinese and in English."""
    settings = parse_settings("[embeddings]\nlocal = true", "file", SPECS)
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings.embeddings, {}, stack)
        memory = await open_memory(f"sqlite:///{tmp_path}/m.db", stack, embedder)
        texts = ("用户喜欢喝绿茶", "养了一只猫", "lives in Paris")
        await memory.write(
            "w", tuple(MemoryEntry(memory_id=text, user_id="u", text=text) for text in texts)
        )
        for query, best in (("what does she drink?", texts[0]), ("where is home", texts[2])):
            found = await memory.recall("r", Recall(user_id="u", query=query))
            assert found[0].text == best
    said = await recall(settings, {})
    assert said == (True, "vectors by wordllama-l2-supercat, in this process")
    assert embedder is not None
    assert maker(embedder) == f"{LocalEmbedder.name}/{LocalEmbedder.size}"


@pytest.mark.sockets
def test_the_doctor_says_what_recall_uses(tmp_path: Path) -> None:
    """Vectors and by which model; or full text and why; and whether a server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        _, said = doctor(tmp_path, port=port)
        assert "note    recall: full text: [embeddings] names no model" in said
        status, said = doctor(tmp_path, ENDPOINT, port=port)
        assert status == 1
        assert "missing recall: full text: [stores] memory = 'memory://' keeps no vectors" in said
        kept = ("GOOD", GOOD.replace('memory = "memory://"', 'memory = "sqlite:///{folder}/m.db"'))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_doctor, *kept)
            status, said = doctor(tmp_path, ENDPOINT, port=port)
            vectors = f"vectors by small, 64 dimensions, http://127.0.0.1:{port}/v1"
            assert f"good    recall: {vectors}: reachable" in said
            assert status == 0
            _, said = doctor(tmp_path, ENDPOINT.format(port=1), port=port)
            assert "missing recall: vectors by small" in said
            assert "no server listens at 127.0.0.1:1" in said


@pytest.mark.sockets
@pytest.mark.parametrize("kept", ["sqlite", "postgresql"])
async def test_vectors_of_another_size_are_told(
    kept: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Before the router starts with it; what is found by full text for a while is no fault."""
    async with AsyncExitStack() as stack:
        where = f"sqlite:///{tmp_path}/m.db"
        if kept == "postgresql":
            server = psycopg.conninfo.conninfo_to_dict(request.getfixturevalue("pgvector_dsn"))
            address = f"postgresql:///?{urlencode(server)}"
            where = await stack.enter_async_context(own_schema(address))
        text = '[stores]\nmemory = "env:DB"' + ENDPOINT.format(port=1)
        settings = parse_settings(text, "file", SPECS)
        told = "vectors by small, 64 dimensions, http://127.0.0.1:1/v1"
        assert await recall(settings, {"DB": where}) == (True, told), "there are no tables"
        async with AsyncExitStack() as opened:
            memory = await open_memory(where, opened, HashedEmbedder(32, "small"))
            await memory.write("w", (MemoryEntry(memory_id="1", user_id="u", text="tea"),))
        good, said = await recall(settings, {"DB": where})
        assert good
        assert said == (
            f"{told}; 1 of 1 entries have none of 'small/64' yet, and are found by full text "
            "until it has made them; vectors of 'small/32' are not compared with its"
        )


@pytest.mark.sockets
async def test_a_role_that_may_not_create_the_extension_is_named(pgvector_dsn: str) -> None:
    """The server has pgvector, the database has not; and who is not there cannot be asked."""
    settings = parse_settings(
        '[embeddings]\nlocal = true\n[stores]\nmemory = "env:DB"', "file", SPECS
    )
    name = f"bare_{uuid4().hex}"
    bare = psycopg.conninfo.conninfo_to_dict(pgvector_dsn) | {"dbname": name}
    query = urlencode({key: value for key, value in bare.items() if key != "user"})
    async with await psycopg.AsyncConnection.connect(pgvector_dsn, autocommit=True) as admin:
        await admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            owner = f"postgresql:///?{query}&user={bare['user']}"
            assert (await recall(settings, {"DB": owner}))[0]
            others = f"{owner}&options={quote(f'-crole={READER}')}"
            good, said = await recall(settings, {"DB": others})
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    assert not good
    assert said.endswith("the extension vector is not created, and the role may not do it")
    no_server = {"DB": "postgresql://127.0.0.1:1/x"}
    told = (False, "[stores] memory cannot be asked whether it keeps vectors")
    assert await recall(settings, no_server) == told


@pytest.mark.sockets
async def test_a_server_without_pgvector_is_named(
    postgres_dsn: str, pgvector_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By the doctor as missing, by the router in its log: it finds by full text."""
    settings = parse_settings(
        '[embeddings]\nlocal = true\n[stores]\nmemory = "env:DB"', "file", SPECS
    )
    assert (await recall(settings, {"DB": pgvector_dsn}))[0]
    good, said = await recall(settings, {"DB": postgres_dsn})
    if good:
        pytest.skip("the server has pgvector")
    assert said == "full text: the server has no pgvector"
    async with own_schema(postgres_dsn) as dsn, AsyncExitStack() as stack:
        embedder = await open_embedder(settings.embeddings, {}, stack)
        memory = await open_memory(dsn, stack, embedder)
        entry = MemoryEntry(memory_id="1", user_id="u", text="likes tea", at=1)
        await memory.write("w", (entry,))
        assert await memory.recall("r", Recall(user_id="u", query="tea")) == (entry,)
    assert "no pgvector" in caplog.text
