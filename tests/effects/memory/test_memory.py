"""Long-term memory: one suite for the fake, SQLite and PostgreSQL, by full text and vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed
from contract.ports import Memory
from contract.stores import MemoryEntry, Recall
from effects.memory import InMemoryMemory, open_memory
from effects.memory.fake import HashedEmbedder
from effects.memory.store import query_terms, text_terms
from tests.support.postgres import PLACES, empty_place


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
    full = entry("喜欢喝绿茶", session_id="s1", relation="朋友")
    bare = MemoryEntry(memory_id="m2", user_id="u1", text="works in Paris")
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
