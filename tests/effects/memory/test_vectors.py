"""Recall by vectors: the nearest of one user, whatever is ruled out, and never half of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contract.errors import Fault
from contract.stores import DataSubject, Recall
from effects.memory.fake import HashedEmbedder
from tests.support.memories import Compass, Memories, Moody, entry, told

OLD, NEW = HashedEmbedder(64, "old"), HashedEmbedder(128, "new")
AWAY = Fault("model_unavailable", retryable=True)


async def test_the_nearest_are_found_in_their_order(memories: Memories) -> None:
    """Though they share no word; what points away is not."""
    async with memories.open(Compass()) as memory:
        await memory.write("w", tuple(entry(f"{turn} x{turn}") for turn in (80, 10, 40, 100, 180)))
        assert await told(memory, "0 y") == ["10 x10", "40 x40", "80 x80"]
        assert await told(memory, Recall(user_id="u1", query="0", limit=1)) == ["10 x10"]
        assert memory.recalls == {"vectors": 2}


async def test_equally_near_the_newest_is_first(memories: Memories) -> None:
    """As with full text."""
    async with memories.open(Compass()) as memory:
        for name in ("a", "b", "c"):
            await memory.write("w", (entry(f"30 {name}"),))
        assert await told(memory, "0") == ["30 c", "30 b", "30 a"]
        assert await told(memory, Recall(user_id="u1", query="0", limit=2)) == ["30 c", "30 b"]


@pytest.mark.untraced
async def test_of_many_none_is_left_out(memories: Memories) -> None:
    """They are read in pieces: the nearest may stand in the first, in the last or between."""
    many = [entry(f"{80 - n % 20} x{n}") for n in range(600)]
    for number, place in enumerate((0, 255, 256, 511, 599)):
        many[place] = entry(f"{10 * number} near")
    async with memories.open(Compass()) as memory:
        await memory.write("w", tuple(many[:-1]))
    async with memories.open(Compass()) as memory:
        nearest = [f"{10 * number} near" for number in range(5)]
        assert (await told(memory, "0"))[:4] == nearest[:4]
        await memory.write("w", tuple(many[-1:]))
        assert await told(memory, "0") == nearest


async def test_what_is_ruled_out_starves_nobody(memories: Memories) -> None:
    """Forty nearer entries of this session, of another relation and of others take no place."""
    near = [entry(f"1 s{n}", session_id="this", relation="r") for n in range(40)]
    others = [entry(f"1 o{n}", "u2", "s", "r") for n in range(40)]
    strange = [entry(f"1 q{n}", session_id="s", relation="q") for n in range(40)]
    far = [entry(f"60 f{n}", session_id="s", relation="r") for n in range(3)]
    async with memories.open(Compass()) as memory:
        await memory.write("w", (*near, *far, *others, *strange, entry("61 none", relation="r")))
        asked = Recall(user_id="u1", query="0", except_session="this", relation="r")
        assert await told(memory, asked) == ["60 f2", "60 f1", "60 f0", "61 none"]
        unknown = Recall(user_id="u1", query="0", relation="unknown")
        assert await told(memory, unknown) == []
        unheard = Recall(user_id="u1", query="0", except_session="unheard of", limit=100)
        assert len(await told(memory, unheard)) == 84


async def test_what_others_write_is_found_at_once(memories: Memories) -> None:
    """Two processes over the same tables; and nothing is told that one of them forgot."""
    async with memories.open(Compass()) as left, memories.open(Compass()) as right:
        await left.write("w", (entry("10 a", session_id="s"),))
        assert await told(right, "0") == ["10 a"]
        await left.write("w", (entry("5 b"),))
        assert await told(right, "0") == ["5 b", "10 a"]
        assert await left.erase(DataSubject("chat", "s")) == 1
        assert await told(right, "0") == ["5 b"]
        await left.erase(DataSubject("user", "u1"))
        await left.write("w", (entry("20 c"),))
        assert await told(right, "0") == ["20 c"]


async def test_an_embedder_that_fails_leaves_full_text(
    memories: Memories, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logged and counted; entries are stored, and found meanwhile."""
    monkeypatch.setattr("effects.memory.search.FIRST_WAIT", 3_600.0)  # no vector comes meanwhile
    moody = Moody()
    async with memories.open(moody) as memory:
        await memory.write("w", (entry("likes tea"),))
        moody.fault = AWAY
        assert await told(memory, "tea") == ["likes tea"]
        assert await memory.write("w", (entry("hates tea leaves"),)) == 1
        for _ in ("the recall", "the write", "the background, until FIRST_WAIT has passed"):
            await moody.failed.acquire()
        assert set(await told(memory, "tea")) == {"likes tea", "hates tea leaves"}
        assert memory.recalls == {"text": 2}
        assert memory.failures == {"model_unavailable": 3}
        moody.fault = None
        assert set(await told(memory, "tea")) == {"likes tea", "hates tea leaves"}
        assert memory.recalls["vectors_and_text"] == 1
    assert "recalled by full text" in caplog.text
    assert "made later" in caplog.text
    assert "likes tea" not in caplog.text


async def test_what_waits_is_caught_up_with(memories: Memories) -> None:
    """At the next opening at the latest, in the background."""
    moody = Moody()
    moody.fault = AWAY
    async with memories.open(moody) as memory:
        await memory.write("w", (entry("likes tea"), entry("likes cake")))
    assert memories.counts() == [2, 0, 2]
    async with memories.open(HashedEmbedder()) as memory:
        await memories.settled(HashedEmbedder())
        assert await told(memory, "tea") == ["likes tea"]
        assert memory.recalls == {"vectors": 1}
    assert memories.counts() == [2, 2, 0]


async def test_another_model_begins_anew(memories: Memories) -> None:
    """Vectors of two are never compared; those of the old one go when they are not needed."""
    async with memories.open(OLD) as memory:
        await memory.write("w", (entry("likes tea"), entry("likes cake")))
    moody = Moody(NEW)
    moody.fault = Fault("model_bad_request")
    async with memories.open(moody) as memory:
        moody.fault = None
        assert await told(memory, "tea") == ["likes tea"]
        await memory.write("w", (entry("drinks tea"),))
        assert set(await told(memory, "tea")) == {"likes tea", "drinks tea"}
    makers = "SELECT DISTINCT made_by FROM memory_vectors ORDER BY 1"
    assert ("old/64",) in memories.read(makers)
    async with memories.open(NEW):
        await memories.settled(NEW)
    async with memories.open(NEW) as memory:
        assert memories.read(makers) == [("new/128",)]
        assert memories.counts() == [3, 3, 0]
        assert set(await told(memory, "tea")) == {"likes tea", "drinks tea"}


async def test_another_model_is_logged_once(
    memories: Memories, caplog: pytest.LogCaptureFixture
) -> None:
    """How many wait for its vectors, and whose there are; the first model has none to replace."""
    async with memories.open(OLD) as memory:
        await memory.write("w", (entry("likes tea"), entry("likes cake")))
    assert caplog.messages == []
    lacking = (
        "memory: 2 of 2 entries have none of 'new/128' yet, and are found by full text until it "
        "has made them; vectors of 'old/64' are not compared with its"
    )
    async with memories.open(NEW):
        await memories.settled(NEW)
    async with memories.open(NEW):
        pass
    assert caplog.messages == [lacking]


async def test_a_process_with_the_old_model_finds_by_full_text(memories: Memories) -> None:
    """Where its vectors have been removed, nothing is found by the few it made since."""
    async with memories.open(OLD) as old:
        await old.write("w", (entry("likes tea"),))
        async with memories.open(NEW):
            await memories.settled(NEW)
        async with memories.open(NEW):
            await old.write("w", (entry("hates tea"),))
            assert set(await told(old, "tea")) == {"likes tea", "hates tea"}
            assert old.recalls == {"text": 1}


async def test_entries_from_before_vectors_get_theirs(memories: Memories) -> None:
    """A memory that had no embedder has one now."""
    async with memories.open(None) as memory:
        await memory.write("w", (entry("likes tea"),))
    async with memories.open(HashedEmbedder()) as memory:
        await memories.settled(HashedEmbedder())
        assert await told(memory, "tea") == ["likes tea"]
        assert memory.recalls == {"vectors": 1}


async def test_a_file_of_the_first_version_gets_vectors(tmp_path: Path) -> None:
    """It had entries and terms alone; nothing of them is lost."""
    memories = Memories(f"sqlite:///{tmp_path}/memory.db")
    async with memories.open(None) as memory:
        await memory.write("w", (entry("likes tea"),))
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as file:
        for table in ("makers", "vectors", "waiting", "generations"):
            file.execute(f"DROP TABLE memory_{table}")
        file.execute("DROP TABLE memory_progress")
        file.execute("DROP INDEX memories_of_a_session")
        for index in ("changed_memories", "memories_by_id"):
            file.execute(f"DROP INDEX {index}")
        for column in ("kind", "at", "changed_in"):
            file.execute(f"ALTER TABLE memories DROP COLUMN {column}")
        file.execute("UPDATE schema_versions SET version = 1 WHERE store = 'memory'")
    async with memories.open(HashedEmbedder()) as memory:
        await memories.settled(HashedEmbedder())
        assert await told(memory, "tea") == ["likes tea"]
        assert memory.recalls == {"vectors": 1}


@pytest.mark.parametrize("whose", [DataSubject("user", "u1"), DataSubject("chat", "s")])
async def test_forgetting_leaves_nothing_behind(memories: Memories, whose: DataSubject) -> None:
    """Neither entries nor vectors, nor what waits for them; the others keep all of theirs."""
    moody = Moody()
    async with memories.open(moody) as memory:
        other = entry("likes tea, too", "u2", "t")
        await memory.write("w", (entry("likes tea", session_id="s"), other))
        moody.fault = Fault("model_bad_request")
        await memory.write("w", (entry("waits", session_id="s"), entry("waits", "u2", "t")))
        assert await memory.erase(whose) == 2
        assert await memory.erase(whose) == 0
    assert memories.counts() == [2, 1, 1]
    for table in ("memories", "memory_vectors", "memory_waiting"):
        assert set(memories.read(f"SELECT DISTINCT user_id FROM {table}")) == {("u2",)}


async def test_a_vector_that_comes_too_late_is_not_kept(memories: Memories) -> None:
    """The entry was forgotten meanwhile, and another one may have its place in the table."""
    moody = Moody(Compass())
    moody.fault = AWAY  # what waits stays so
    async with memories.open(moody) as memory:
        shelf = memory._store  # noqa: SLF001 (what happens between its two calls)
        stored = (await shelf.add([entry("10 a")])).new
        await memory.erase(DataSubject("user", "u1"))
        await shelf.add([entry("90 b")])
        await shelf.keep(stored, await Compass().embed(["10 a"]))
        assert memories.counts() == [1, 0, 1]
        assert await told(memory, "0 b") == ["90 b"]


async def test_what_points_elsewhere_is_not_told(memories: Memories) -> None:
    """An angle of ninety degrees is none at all."""
    async with memories.open(Compass()) as memory:
        await memory.write("w", (entry("10 a"), entry("89 b"), entry("91 c")))
        assert await told(memory, "0") == ["10 a", "89 b"]
