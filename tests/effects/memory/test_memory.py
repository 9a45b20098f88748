"""Long-term memory: one suite for the fake, SQLite and PostgreSQL, by full text and vectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed
from contract.ports import Memory
from contract.stores import (
    READ_MEANWHILE,
    DataSubject,
    FindNear,
    MemoryEntry,
    NearEntries,
    Reading,
    Recall,
    Revision,
)
from effects.memory import InMemoryMemory, open_memory
from effects.memory.fake import HashedEmbedder
from effects.memory.store import query_terms, text_terms
from tests.support.postgres import PLACES, empty_place

NOW = 1_790_000_000


def entry(
    text: str, user_id: str = "u1", session_id: str | None = None, relation: str | None = None
) -> MemoryEntry:
    """Make an entry named after its text."""
    return MemoryEntry(
        memory_id=f"id of {text}",
        user_id=user_id,
        text=text,
        session_id=session_id,
        relation=relation,
        confidence=0.8,
        at=NOW,
    )


@pytest.fixture(
    params=[
        "in memory",
        *PLACES,
        "sqlite, vectors",
        pytest.param("postgres, vectors", marks=pytest.mark.sockets),
    ]
)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memory]:
    """Give an empty memory of each kind."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        if request.param == "in memory":
            yield InMemoryMemory()
            return
        place = await enter(empty_place(request, tmp_path, "pgvector_dsn"))
        embedder = HashedEmbedder() if "vectors" in request.param else None
        yield await enter(open_memory(place, embedder))


async def texts(memory: Memory, query: str, **fields: object) -> list[str]:
    """Tell the texts recalled; `fields` are the others of `Recall`."""
    wanted = msgspec.convert({"user_id": "u1", "query": query, **fields}, Recall)
    return [found.text for found in await memory.recall("recall", wanted)]


async def test_an_empty_memory_remembers_nothing(memory: Memory) -> None:
    """Neither an error nor a guess."""
    assert await texts(memory, "茶") == []
    assert await memory.write("write", ()) == 0


async def test_what_is_written_comes_back_whole(memory: Memory) -> None:
    """Every field as it was."""
    full = msgspec.structs.replace(
        entry("喜欢喝绿茶", session_id="s1", relation="朋友"),
        kind="preference",
        changed_in=("s2", '"s,3"'),
    )
    bare = MemoryEntry(memory_id="m2", user_id="u1", text="works in Paris", at=0)
    assert await memory.write("write", (full, bare)) == 2
    assert await memory.recall("recall", Recall(user_id="u1", query="绿茶")) == (full,)
    assert await memory.recall("recall", Recall(user_id="u1", query="PARIS!")) == (bare,)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("茶", "用户喜欢喝茶"),
        ("我喜欢什么茶?", "用户喜欢喝茶"),
        ("你还记得我的生日吗", "生日是五月三日"),
        ("where does she live", "she lives: live music in Oslo"),
        ("ＰＹＴＨＯＮ", "writes Python"),
        ("カレー", "カレーが好き"),
        ("2026", "moved in 2026"),
        ("straße", "lives in STRASSE 5"),
        ("café", "likes the Café"),
    ],
)
async def test_words_of_many_scripts_are_found(memory: Memory, query: str, text: str) -> None:
    """Chinese without spaces, words of one character, full-width and upper-case letters."""
    await memory.write("write", (entry("完全无关"), entry(text), entry("nothing to do with it")))
    assert (await texts(memory, query))[0] == text


async def test_the_best_match_is_first(memory: Memory) -> None:
    """More of the query's words, earlier in the answer; others do not appear."""
    await memory.write(
        "write",
        (entry("喜欢咖啡"), entry("喜欢绿茶和红茶"), entry("养了一只猫"), entry("讨厌绿茶")),
    )
    found = await texts(memory, "喜欢绿茶")
    assert found[0] == "喜欢绿茶和红茶"
    assert set(found) == {"喜欢咖啡", "喜欢绿茶和红茶", "讨厌绿茶"}


TEAS = (
    entry("tea one", session_id="s1", relation="朋友"),
    entry("tea two", session_id="s2"),
    entry("tea"),
    entry("tea", "u2"),
)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {"tea one", "tea two", "tea"}),
        ({"user_id": "u2"}, {"tea"}),
        ({"user_id": "u3"}, set()),
        ({"user_id": "u1 OR u2"}, set()),
        ({"except_session": "s1"}, {"tea two", "tea"}),
        ({"relation": "朋友"}, {"tea one"}),
        ({"relation": "同事"}, set()),
        ({"limit": 0}, set()),
        ({"limit": -1}, set()),
    ],
)
async def test_a_recall_is_narrowed(
    memory: Memory, fields: dict[str, object], found: set[str]
) -> None:
    """To a user, to other sessions, to a relation; none or fewer is nothing."""
    assert await memory.write("write", TEAS) == len(TEAS), "equal texts of two users are two"
    assert set(await texts(memory, "tea", **fields)) == found
    assert len(await texts(memory, "tea", limit=2)) == 2


async def test_an_equal_text_is_stored_once(memory: Memory) -> None:
    """In one call and over calls; the first one stays."""
    first = entry("likes tea", session_id="s1")
    again = msgspec.structs.replace(first, memory_id="other", session_id="s2")
    assert await memory.write("write", (first, again)) == 1
    assert await memory.write("write", (again, entry("owns dogs"))) == 1
    assert await memory.recall("recall", Recall(user_id="u1", query="tea")) == (first,)


async def test_an_entry_without_a_time_gets_the_time_it_is_stored(memory: Memory) -> None:
    """The first one's: it is stored once."""
    began = int(time.time())
    for _ in range(2):
        await memory.write("write", (MemoryEntry(memory_id="m", user_id="u1", text="tea"),))
    (found,) = await memory.recall("recall", Recall(user_id="u1", query="tea"))
    assert found.at is not None
    assert began <= found.at <= time.time()


READING = Reading(user_id="u1", flow="session", session_id="s1")


def revision(after: str | None, to: str, *removed: str) -> Revision:
    """Make what comes of reading the conversation."""
    return Revision(reading=READING, message_id=to, after=after, removed=removed)


async def test_a_revision_adds_and_removes_once(memory: Memory) -> None:
    """Also made again, when another write has removed what it added, or added what it removed."""
    old, new, others = entry("likes tea"), entry("likes green tea"), entry("likes tea", "u2")
    await memory.write("write", (old, others))
    first = revision(None, "m1", old.memory_id)
    assert await memory.progress("read", READING) is None
    for _ in range(2):
        assert await memory.write("write", (new,), first) == 1
        assert await memory.progress("read", READING) == "m1"
        assert await texts(memory, "tea") == ["likes green tea"]
        assert await texts(memory, "tea", user_id="u2") == ["likes tea"]
    assert await memory.write("write", (old,), revision("m1", "m2", new.memory_id)) == 1
    with pytest.raises(EffectFailed):
        await memory.write("write", (new,), first)
    assert await texts(memory, "tea") == ["likes tea"]


@pytest.mark.parametrize(("read", "after"), [("m1", None), ("m1", "m0"), (None, "m0")])
async def test_of_two_readings_of_one_message_the_first_counts(
    memory: Memory, read: str | None, after: str | None
) -> None:
    """The other one changes nothing, and can tell why."""
    await memory.write("write", (entry("likes tea"),))
    if read is not None:
        assert await memory.write("write", (), revision(None, read)) == 0
    with pytest.raises(EffectFailed) as failed:
        await memory.write("write", (entry("hates tea"),), revision(after, "m2", "id of likes tea"))
    assert failed.value.fault == READ_MEANWHILE
    assert await texts(memory, "tea") == ["likes tea"]
    assert await memory.progress("read", READING) == read


async def test_readings_are_told_apart_and_forgotten(memory: Memory) -> None:
    """By user, flow and session; an erasure takes those of its subject along."""
    others = [msgspec.structs.replace(READING, **{name: "x"}) for name in ("user_id", "flow")]
    for one in (READING, *others):
        made = msgspec.structs.replace(revision(None, f"m {one.user_id}"), reading=one)
        assert await memory.write("write", (), made) == 0
    assert [await memory.progress("r", one) for one in others] == ["m x", "m u1"]
    for subject in (DataSubject("message", "m x"), DataSubject("chat", "s1")):
        assert await memory.progress("r", READING) == "m u1"
        assert await memory.erase(subject) == 0  # type: ignore[attr-defined] # not of the port
        assert await memory.progress("r", others[0]) is None
    assert [await memory.progress("r", one) for one in (READING, *others)] == [None] * 3


@pytest.mark.parametrize("session", ["s1", "s2", 's"3', "S1", "s2,", '3"'])
async def test_a_session_takes_along_what_it_changed(memory: Memory, session: str) -> None:
    """Of one whose name is another's in part, or but for capitals, nothing goes."""
    changed = msgspec.structs.replace(entry("likes tea", session_id="s1"), changed_in=("s2", 's"3'))
    await memory.write("write", (changed, entry("likes cake", session_id="s0")))
    gone = session in {"s1", "s2", 's"3'}
    assert await memory.erase(DataSubject("chat", session)) == gone  # type: ignore[attr-defined] # as above
    left = ["likes cake"] if gone else ["likes cake", "likes tea"]
    assert sorted(await texts(memory, "likes")) == left


async def test_an_entry_can_be_changed_in_many_sessions(memory: Memory) -> None:
    """Of ids as long as they may be, that no index could compress."""
    draw = Random(1)
    ideographs = [chr(one) for one in range(0x4E00, 0x9FA0)]
    sessions = tuple("".join(draw.choices(ideographs, k=128)) for _ in range(20))
    changed = msgspec.structs.replace(entry("likes tea", session_id="s1"), changed_in=sessions)
    assert await memory.write("write", (changed,)) == 1
    assert await memory.recall("recall", Recall(user_id="u1", query="tea")) == (changed,)
    assert await memory.erase(DataSubject("chat", sessions[7])) == 1  # type: ignore[attr-defined] # as above


async def test_what_another_session_changed_is_recalled_where_it_was_learnt(memory: Memory) -> None:
    """What was learnt and changed in one session alone is not: the model has its messages."""
    changed = msgspec.structs.replace(entry("likes tea", session_id="s1"), changed_in=("s2",))
    await memory.write("write", (changed, entry("hates tea", session_id="s1")))
    assert await texts(memory, "tea", except_session="s1") == ["likes tea"]


async def test_what_is_near_each_text_is_found(memory: Memory) -> None:
    """As a recall finds it; how near it is where there are vectors."""
    await memory.write("write", (entry("likes green tea"), entry("owns a dog"), entry("tea", "u2")))
    query = FindNear("u1", ("likes green tea", "a dog is owned", " "), 1)
    near = await memory.near("near", query)
    found = [[one.entry.text for one in matches] for matches in near.matches]
    assert found == [["likes green tea"], ["owns a dog"], []]
    (tea,), (dog,), *_ = near.matches
    if near.among:
        assert [len(row) for row in near.among] == [0, 1, 2]
        assert tea.similarity == pytest.approx(1.0, abs=0.001)
        assert dog.similarity is not None
        assert 0.3 < dog.similarity < 1.0
    else:
        assert (tea.similarity, dog.similarity) == (None, None)
    assert await memory.near("near", FindNear("u1", ())) == NearEntries()


async def test_a_write_made_again_reports_what_the_first_one_did(memory: Memory) -> None:
    """As after a kill, with the ids that are on the tape; what was known before stays not new."""
    await memory.write("write", (entry("likes tea"),))
    known = msgspec.structs.replace(entry("likes tea"), memory_id="other")
    write = (known, entry("owns dogs"), entry("has a cat"))
    for _ in range(3):
        assert await memory.write("write", write) == 2
    assert len(await memory.recall("recall", Recall(user_id="u1", query="tea dogs cat"))) == 3


@pytest.mark.untraced
@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "?!",
        "🙂",
        '"',
        'tea" OR owner:u',
        "NEAR(tea, 5)",
        "tea*",
        "owner : x",
        "AND OR NOT",
        "-tea",
        "^tea",
        "{terms}: tea",
        "'; DROP TABLE memories; --",
        "茶" * 5_000,
        "_",
        "\u0301",
    ],
)
async def test_no_query_is_syntax(memory: Memory, query: str) -> None:
    """Whatever is asked: an answer, and the entries are still there."""
    await memory.write("write", (entry("likes tea"),))
    assert await texts(memory, query) in ([], ["likes tea"])
    assert await texts(memory, "tea") == ["likes tea"]


@pytest.mark.parametrize("hostile", ["a\0b", "\ud800"], ids=["nul", "surrogate"])
async def test_text_no_store_can_keep_is_a_fault(memory: Memory, hostile: str) -> None:
    """None of the entries is written, and the fault does not repeat the text."""
    with pytest.raises(EffectFailed) as failed:
        await memory.write("write", (entry("good"), entry(hostile)))
    assert failed.value.fault.code == "memory_failed"
    with pytest.raises(EffectFailed):
        await texts(memory, hostile)
    assert await texts(memory, "good") == []


async def test_writers_at_once_lose_nothing(memory: Memory) -> None:
    """Fifty exchanges write one entry each and one together."""
    counts = await asyncio.gather(
        *(
            memory.write(
                "write",
                (entry(f"tea {n}"), msgspec.structs.replace(entry("tea"), memory_id=f"{n}")),
            )
            for n in range(50)
        )
    )
    assert sum(counts) == 51


async def test_sessions_that_change_the_same_memories_at_once_wait_for_each_other(
    memory: Memory,
) -> None:
    """In whatever order each drops and adds them: none is refused."""
    old = [entry(f"tea {n}") for n in range(40)]
    new = [entry(f"coffee {n}") for n in range(40)]
    await memory.write("write", tuple(old))
    writes = []
    for number, step in enumerate((1, -1, 1, -1)):
        reading = msgspec.structs.replace(READING, session_id=f"s{number}")
        removed = tuple(one.memory_id for one in old[::step])
        made = Revision(reading=reading, message_id="m", removed=removed)
        writes.append(memory.write("write", tuple(new[::step]), made))
    assert await asyncio.gather(*writes) == [40] * 4
    assert {one.split()[0] for one in await texts(memory, "tea or coffee")} == {"coffee"}


@pytest.mark.parametrize(
    ("text", "found", "asked"),
    [
        ("喜欢茶", ["喜", "欢", "茶", "喜欢", "欢茶"], ["喜欢", "欢茶"]),
        ("茶", ["茶"], ["茶"]),
        ("喝Tea吧", ["喝", "tea", "吧"], ["喝", "tea", "吧"]),
        ("a_b-c", ["a", "b", "c"], ["a", "b", "c"]),
        ("tea tea", ["tea", "tea"], ["tea"]),
        ("", [], []),
    ],
)
def test_texts_are_cut_into_terms(text: str, found: list[str], asked: list[str]) -> None:
    """Pairs of dense scripts, words of others; a query names each term once."""
    assert text_terms(text) == found
    assert query_terms(text) == asked


@pytest.mark.untraced
@given(st.text(max_size=80))
def test_terms_are_letters_and_digits(text: str) -> None:
    """So that none can be a quote or an operator; what is asked can be found."""
    asked = query_terms(text)
    assert not any(set(term) & set('"*^():{}-+ \0') for term in asked)
    assert set(asked) <= set(text_terms(text))
