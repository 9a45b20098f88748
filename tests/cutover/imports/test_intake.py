"""Imports into stores: each row once, however often; reached by `cutover forget`; redacted."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.requests import Request

from contract.errors import EffectFailed, Fault
from contract.stores import Turn
from cutover.imports import ImportTally, Put, take_in
from cutover.imports.intake import BATCH, ImportStopped, Stored
from tests.support.asgi import served
from tests.support.embedding_server import asked, hashing
from tests.support.forked import forked_module
from tests.support.imports import Target
from tests.support.memories import TABLES
from tests.support.patience import PATIENCE_S
from tests.support.postgres import PLACES, empty_place, execute

TURNS = [
    {"id": "m1", "session": "s1", "role": "user", "content": "I am Ann", "user": "ann"},
    {"id": "m2", "session": "s1", "role": "assistant", "content": "Hi Ann"},
    {"id": "m3", "session": "s2", "role": "user", "content": "I am Ben", "user": "ben"},
    {"session": "s1", "role": "tool", "content": "{}"},
    {"session": "s1", "role": "user", "content": "Bye", "user": "ann"},
]
NAMES = ("--map", "message_id=id", "--map", "chat_id=session", "--map", "user_id=user")
FACTS = [{"user_id": user, "text": f"{user} likes tea"} for user in ("ann", "ben")]


@pytest.fixture(params=PLACES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    """Return empty stores that can hold vectors."""
    async with empty_place(request, tmp_path, "pgvector_dsn") as address:
        yield Target(tmp_path, address)


@pytest.fixture
def file(tmp_path: Path) -> Target:
    """Return stores that are configured, and not made."""
    target = Target(tmp_path, f"sqlite:///{tmp_path}/store.db")
    target.configure()
    return target


def lines(path: Path, rows: Sequence[object]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.slow
def test_a_second_import_adds_nothing_and_an_id_of_another_turn_is_reported(
    target: Target,
) -> None:
    """What is stored stays as it is; a file that has grown at its end adds that."""
    target.configure()
    path, rejects = lines(target.folder / "a.jsonl", TURNS), target.folder / "rejects.jsonl"
    command = ("import turns", path, "--flow", "session", *NAMES)
    assert target.type(*command) == (
        0,
        "turns of session: 4 new, 0 there already\nleft out: 1 tool message\n",
    )
    stored = target.rows("message_id, flow, chat_id, user_id, reply_to, content")
    assert stored[:3] == [
        ("m1", "session", "s1", "ann", None, "I am Ann"),
        ("m2", "session", "s1", "ann", "m1", "Hi Ann"),
        ("m3", "session", "s2", "ben", None, "I am Ben"),
    ]
    lines(path, [*TURNS, TURNS[1] | {"content": "Hello Ann"}, TURNS[4]])
    status, output = target.type(*command, "--rejects", rejects)
    assert (status, output.splitlines()[0]) == (1, "turns of session: 1 new, 4 there already")
    assert json.loads(rejects.read_text("utf-8")) == {
        "line": 6,
        "reason": "message_id: 'm2' belongs to another turn",
    }
    assert target.rows("message_id, flow, chat_id, user_id, reply_to, content")[:4] == stored
    status, output = target.type(*command[:2], "--flow", "companion", *NAMES)
    assert "turns of companion: 5 new, 0 there already" in output, "its ids are its own"


@pytest.mark.slow
def test_what_is_imported_is_forgotten(target: Target) -> None:
    """A user with the replies to them and their memories, and a chat, by the ids of the file."""
    target.configure()
    turns = lines(target.folder / "turns.jsonl", TURNS)
    facts = lines(target.folder / "facts.jsonl", [one | {"session_id": "s2"} for one in FACTS])
    assert target.type("import turns", turns, "--flow", "session", *NAMES)[0] == 0
    assert target.type("import memories", facts)[0] == 0
    status, output = target.type("forget", "--user", "ann", "--plain")
    assert (status, output.splitlines()[1:3]) == (
        0,
        ["conversations: 3 turns", "memory: 1 entries"],
    )
    assert target.rows("message_id") == [("m3",)]
    status, output = target.type("forget", "--chat", "s2", "--plain")
    assert (status, output.splitlines()[1:3]) == (
        0,
        ["conversations: 1 turns", "memory: 1 entries"],
    )


def test_an_id_of_another_memory_is_reported(target: Target) -> None:
    """Of the same user; one deletion would drop both."""
    target.configure()
    facts = [{"memory_id": "1", "user_id": "u", "text": "likes tea"}]
    more = [
        *facts,
        {"memory_id": "1", "user_id": "u", "text": "likes milk"},
        {"memory_id": "1", "user_id": "v", "text": "likes milk"},
    ]
    path = target.folder / "facts.jsonl"
    assert target.type("import memories", lines(path, facts))[0] == 0
    for new in (1, 0):
        status, output = target.type("import memories", lines(path, more))
        assert (status, output.splitlines()) == (
            1,
            [
                f"memories: {new} new, {2 - new} there already",
                "not stored: 1",
                "  2: memory_id: '1' belongs to another memory",
            ],
        )
    stored = [("1", "u", "likes tea"), ("1", "v", "likes milk")]
    assert target.rows("memory_id, user_id, text", "memories") == stored


@pytest.mark.slow
@pytest.mark.sockets
async def test_memories_have_vectors_of_the_configured_embeddings(target: Target) -> None:
    """Made in batches; none again at the second import, which adds nothing."""
    requests: list[Request] = []
    facts = [{"user_id": "u", "text": f"fact number {number}"} for number in range(100)]
    path = lines(target.folder / "facts.jsonl", facts)
    async with served(asked(hashing(), requests)) as url:
        section = f'[embeddings]\nbase_url = "{url}"\nmodel = "m"\ndimensions = 64\n'
        target.configure(f"{section}total_seconds = {PATIENCE_S}\n")
        for new, there in ((100, 0), (0, 100)):
            typed = await target.type_aside("import memories", path)
            assert typed == (0, f"memories: {new} new, {there} there already\n")
    counts = [execute(target.address, f"SELECT count(*) FROM {one}")[0][0] for one in TABLES]
    assert (len(requests), counts) == (2, [100, 100, 0])


@pytest.mark.sockets
def test_memories_without_vectors_are_stored_and_wait(file: Target) -> None:
    """An endpoint that does not answer costs an import nothing that a router cannot make."""
    closed = '[embeddings]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\ndimensions = 64\n'
    file.configure(closed + "total_seconds = 0.1\n")
    status, output = file.type("import memories", lines(file.folder / "facts.jsonl", FACTS))
    assert status == 0
    assert output.splitlines()[-2:] == [
        "memories: 2 new, 0 there already",
        "without vectors: 2, until a router has made them",
    ]
    assert execute(file.address, "SELECT count(*) FROM memory_waiting") == [(2,)]


def test_texts_are_redacted_where_it_is_configured(
    file: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As captures are, with the same pseudonyms each time; ids stay, by which rows are found."""
    redact = '[imports]\nredact = true\n[captures]\npseudonym_key_env = "THE_KEY"\n'
    config = file.folder / "cutover.toml"
    config.write_text(config.read_text("utf-8").replace("[captures]\n", redact), "utf-8")
    said = {
        **TURNS[0],
        "user": "ann@example.org",
        "user_name": "Ann",
        "id": "",
        "content": "Ann, ann@example.org",
        "data": {"mail": "ann@example.org"},
    }
    turns = lines(file.folder / "turns.jsonl", [said])
    facts = lines(file.folder / "facts.jsonl", [{"user_id": "u", "text": "is ann@example.org"}])
    command = ("import turns", turns, "--flow", "chat", *NAMES)
    status, output = file.type(*command)
    assert (status, "[imports] redact takes the key" in output) == (2, True)
    assert file.rows("content") == []
    monkeypatch.setenv("THE_KEY", "a key")
    for new in (1, 0):
        assert file.type(*command)[1] == f"turns of chat: {new} new, {1 - new} there already\n"
        output = file.type("import memories", facts)[1]
        assert output == f"memories: {new} new, {1 - new} there already\n"
    ((content, name, data, user),) = file.rows("content, user_name, data, user_id")
    pseudonyms = re.fullmatch(r"(<user_name:\w+>), (<email:\w+>)", content)
    assert pseudonyms is not None
    assert (name, json.loads(data)) == (pseudonyms[1], {"mail": pseudonyms[2]})
    assert user == "ann@example.org"
    assert file.rows("text", "memories") == [(f"is {pseudonyms[2]}",)]
    assert "conversations: 1 turns" in file.type("forget", "--user", user)[1]


def test_of_a_file_that_is_cut_off_the_beginning_is_stored(file: Target) -> None:
    """And the status says that it is not all."""
    path = file.folder / "turns.jsonl.gz"
    rows = [TURNS[0] | {"id": number, "content": os.urandom(99).hex()} for number in range(2_000)]
    whole = gzip.compress(lines(file.folder / "turns.jsonl", rows).read_bytes())
    command = ("import turns", path, "--flow", "chat", *NAMES)
    path.write_bytes(whole[:-9])
    status, output = file.type(*command)
    assert status == 1
    assert re.match(rf"turns of chat: {BATCH * 3} new, .*\nerror: .* cannot be read: Comp", output)
    path.write_bytes(whole)
    assert file.type(*command) == (0, "turns of chat: 464 new, 1536 there already\n")


def test_of_a_query_that_fails_the_beginning_is_stored(file: Target) -> None:
    """With a sentence, and the status of a part."""
    query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) SELECT "
        "'c' AS chat_id, 'user' AS role, json(CASE i WHEN 3000 THEN '{' ELSE i END) AS content "
        "FROM n"
    )
    status, output = file.type("import turns sqlite:// --flow chat --query", query)
    assert (status, output.splitlines()) == (
        1,
        [
            f"turns of chat: {BATCH * 5} new, 0 there already",
            "error: 'sqlite://' cannot be read: malformed JSON",
        ],
    )


def test_a_dry_run_shows_rows_and_makes_nothing(file: Target) -> None:
    """Counts are those of an empty store."""
    turns = lines(file.folder / "turns.jsonl", [*TURNS, {"role": "user"}])
    status, output = file.type("import turns", turns, "--flow", "chat", *NAMES, "--dry-run")
    first, *_, counts, left, refused, reason = output.splitlines()
    shown = {"message_id": "m1", "role": "user", "content": "I am Ann", "chat_id": "s1"}
    assert json.loads(first) == shown | {"user_id": "ann"}
    assert (status, counts, left) == (
        1,
        "turns of chat: 4 would be stored",
        "left out: 1 tool message",
    )
    assert (refused, reason) == ("not stored: 1", "  6: chat_id: no value in 'session'")
    assert file.rows("1") == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("turns {file} --flow nosuch", "--flow 'nosuch': flows with conversations are chat, "),
        ("turns {file}.csv --flow chat", "no such file"),
        ("turns {file} --flow chat --map x=y", "--map 'x=y': expected OURS=THEIRS"),
        ("memories env:NOSUCH", "NOSUCH"),
        ("threads mysql://h/d", "the checkpoints in 'mysql' cannot be read: known are sqlite"),
        ("threads sqlite:////nosuch/a.db", "unable to open database file"),
        ("threads postgresql://u:s3cr3t@127.0.0.1:1/d", "'postgresql' cannot be read: Operational"),
    ],
)
def test_what_cannot_begin_is_refused(file: Target, arguments: str, why: str) -> None:
    """In a sentence, with the status 2, and nothing is made."""
    path = lines(file.folder / "a.jsonl", TURNS)
    status, output = file.type("import", *arguments.format(file=path).split())
    assert (status, why in output, "s3cr3t" in output) == (2, True, False), output
    assert file.rows("1") == []


@pytest.mark.parametrize("address", ["memory://", "https://memory.example.org/v1"])
def test_a_store_that_lasts_no_longer_than_the_command_is_refused(
    tmp_path: Path, address: str
) -> None:
    """And so is a service, from which nothing could be erased."""
    path = lines(tmp_path / "a.jsonl", TURNS)
    (tmp_path / "cutover.toml").write_text(f'[stores]\nconversations = "{address}"\n', "utf-8")
    status, output = Target(tmp_path, address).type("import turns", path, "--flow", "chat")
    assert (status, f"conversations is {address.partition(':')[0]}://…" in output) == (2, True)


@asynccontextmanager
async def putting(put: Put[Turn]) -> AsyncIterator[Put[Turn]]:
    """Be an open store."""
    yield put


async def test_no_more_than_a_batch_is_in_memory() -> None:
    """However many rows there are."""
    read, stored, tally = 0, 0, ImportTally()

    def items() -> Iterator[tuple[int, Turn]]:
        nonlocal read
        for read in range(1, 10 * BATCH + 2):
            yield read, Turn(message_id=str(read), role="user", content="x")

    async def put(turns: Sequence[Turn]) -> Stored:
        nonlocal stored
        assert read - stored <= BATCH
        stored += len(turns)
        return Stored(len(turns))

    await take_in(items(), putting(put), tally)
    assert stored == tally.new == read == 10 * BATCH + 1


async def test_a_store_that_fails_stops_the_import() -> None:
    """What is stored by then is counted."""

    async def put(turns: Sequence[Turn]) -> Stored:
        if tally.new:
            raise EffectFailed(Fault("store_unavailable"))
        return Stored(len(turns))

    tally, turn = ImportTally(), Turn(message_id="m", role="user", content="x")
    with pytest.raises(ImportStopped, match=rf"\(store_unavailable\); {BATCH} rows are in it"):
        await take_in(enumerate([turn] * (2 * BATCH)), putting(put), tally)


@pytest.mark.slow
def test_an_import_that_was_killed_is_repeated(file: Target) -> None:
    """Nothing is stored twice, nothing is missing, and the order is that of the file."""
    rows = [
        {"chat_id": "c", "role": ("user", "assistant")[number % 2], "content": f"{number:0600}"}
        for number in range(1_000)
    ]
    whole, pipe = lines(file.folder / "whole.jsonl", rows), file.folder / "pipe.jsonl"
    os.mkfifo(pipe)
    command = ("import", "turns", str(pipe), "--flow", "chat", "--config", "cutover.toml")
    child = forked_module("cutover", *command, cwd=file.folder, IMPORT_STORE=file.address)
    with child as importing, pipe.open("wb") as end:
        # More than a pipe holds is taken only once the first batch is stored.
        end.write(whole.read_bytes())
        importing.send_signal(signal.SIGKILL)
        assert importing.wait() == -signal.SIGKILL
    assert file.rows("content") == [(row["content"],) for row in rows[:BATCH]]
    status, output = file.type("import turns", whole, "--flow", "chat")
    assert (status, output) == (0, "turns of chat: 488 new, 512 there already\n")
    assert file.rows("content") == [(row["content"],) for row in rows]
