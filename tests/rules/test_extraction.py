"""What a model's answer may change in memory: what it was shown, and a little at a time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.session import SessionOptions
from contract.stores import MemoryEntry, NearEntries, NearEntry, Reading, Turn
from rules.extraction import lessons as extraction
from rules.extraction.lessons import (
    MOST_DROPPED,
    MOST_SESSIONS,
    MOST_SHOWN,
    Edit,
    Lesson,
    contain,
    read_edits,
)
from rules.memories import LONGEST, MOST

OPTIONS = SessionOptions()


def memory(text: str, session: str | None = "s0", *changed_in: str) -> MemoryEntry:
    """Build an entry named after its text."""
    return MemoryEntry(
        memory_id=f"id of {text}",
        user_id="u",
        text=text,
        session_id=session,
        changed_in=changed_in,
        kind="plan",
        at=1_790_000_000,
    )


TEA, CAT, TWO = memory("likes tea"), memory("owns a cat"), memory("has 2 sons")
KNOWN = {"m1": TEA, "m2": CAT, "m3": TWO}


def edits(*operations: object) -> tuple[Edit, ...]:
    """Read an answer with operations."""
    answer = msgspec.json.encode({"operations": operations}).decode()
    return read_edits(answer, KNOWN, 0.3)


def shape(found: Sequence[Edit]) -> list[tuple[str, str, str]]:
    """Return what each edit does: action, text, text of its target."""
    return [(one.action, one.text, one.target.text if one.target else "") for one in found]


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ({"op": "add", "text": " x "}, [("add", "x", "")]),
        ("x", [("add", "x", "")]),
        ({"content": "x"}, [("add", "x", "")]),
        ({"op": "update", "id": "m2", "text": "x"}, [("update", "x", "owns a cat")]),
        ({"op": "UPDATE", "id": "[m2]", "text": "x"}, [("update", "x", "owns a cat")]),
        ({"op": "update", "id": "m4", "text": "x"}, [("add", "x", "")]),
        ({"op": "update", "id": TEA.memory_id, "text": "x"}, [("add", "x", "")]),
        ({"op": "update", "id": ["m1"], "text": "x"}, [("add", "x", "")]),
        ({"op": "update", "id": "m1", "text": " "}, []),
        ({"op": "update", "id": "m1"}, []),
        ({"op": "add", "id": "m1", "text": "x"}, [("add", "x", "")]),
        ({"op": "add", "text": "x" * (LONGEST + 1)}, []),
        ({"op": "add", "text": "x\0"}, []),
        ({"op": "add", "text": ["x"]}, []),
        ({"op": "add", "text": "x", "confidence": 0.2}, []),
        ({"op": "add", "text": "x", "confidence": "high"}, []),
        ({"op": "delete", "id": "m3"}, [("delete", "", "has 2 sons")]),
        ({"op": "delete", "id": "m3", "text": "x"}, [("delete", "", "has 2 sons")]),
        ({"op": "delete", "id": "m9"}, []),
        ({"op": "delete"}, []),
        ({"op": "drop", "id": "m1"}, []),
        ({"op": 5, "text": "x"}, []),
        (None, []),
        ([], []),
    ],
)
def test_operations_are_read(operation: object, read: list[tuple[str, str, str]]) -> None:
    """An unknown id changes nothing: a memory's own, too; what is none is left out."""
    assert shape(edits(operation)) == read


@pytest.mark.parametrize("answer", ["", "{", '{"operations": 1}', '{"operations": {"op": "add"}}'])
def test_an_answer_without_operations_changes_nothing(answer: str) -> None:
    """Cut off, or of another shape."""
    assert read_edits(answer, KNOWN, 0.3) == ()


def test_of_hundreds_of_operations_the_first_count() -> None:
    """Fewer yet of those that drop memories; of several on one memory, the first."""
    known = {f"m{n}": memory(f"fact {n}") for n in range(MOST_SHOWN)}
    drops = [{"op": "delete", "id": short} for short in known]
    answer = msgspec.json.encode({"operations": drops * 20}).decode()
    assert len(read_edits(answer, known, 0.3)) == MOST_DROPPED
    adds = [{"op": "add", "text": f"new {n}"} for n in range(500)]
    assert len(edits(*adds)) == MOST
    twice = edits({"op": "update", "id": "m1", "text": "x"}, {"op": "delete", "id": "m1"})
    assert shape(twice) == [("update", "x", "likes tea")]


@pytest.mark.untraced
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_value_is_read_without_an_error(value: object) -> None:
    """In the place of an operation and of each of its fields; what comes of it can be stored."""
    fields = [{"op": op, "id": value, "text": value, "type": value} for op in ("add", "update")]
    for edit in edits(value, *fields, {"op": value, "confidence": value, "text": "x"}):
        assert edit.text.strip()
        assert edit.kind in {None, *extraction.KINDS}


def near(*matches: tuple[MemoryEntry, float | None]) -> NearEntries:
    """Say what is near the text of the only edit."""
    return NearEntries((tuple(NearEntry(*one) for one in matches),), ((),))


@pytest.mark.parametrize(
    ("text", "matches", "made"),
    [
        ("loves tea", near((TEA, 0.7)), [("update", "loves tea", "likes tea")]),
        ("loves tea", near((TEA, None)), [("update", "loves tea", "likes tea")]),
        ("likes tea", near((TEA, 1.0)), []),
        ("loves tea", near((TEA, 0.6)), [("add", "loves tea", "")]),
        ("loves tea", near((CAT, 0.9)), [("add", "loves tea", "")]),
        ("loves no tea", near((TEA, 0.9)), [("add", "loves no tea", "")]),
        ("has 3 sons", near((TEA, 0.5), (TWO, 0.99)), [("add", "has 3 sons", "")]),
        ("has two sons", near((TWO, 0.99)), [("update", "has two sons", "has 2 sons")]),
    ],
)
def test_a_change_is_made_where_nothing_is_lost(
    text: str, matches: NearEntries, made: list[tuple[str, str, str]]
) -> None:
    """Else the text is a fact of its own; of another memory only where that says the same."""
    change = edits({"op": "update", "id": "m1", "text": text})
    assert shape(contain(change, matches, "s", OPTIONS)) == made


@pytest.mark.parametrize(
    ("text", "matches", "made"),
    [
        ("really likes tea", near((TEA, 0.95)), 0),
        ("really likes tea", near((TEA, 0.85)), 1),
        ("really likes tea", near((TEA, None)), 1),
        ("likes green tea", near((TEA, 0.95)), 1),
        ("has 3 sons", near((TWO, 1.0)), 1),
    ],
)
def test_a_fact_that_is_known_is_not_added(text: str, matches: NearEntries, made: int) -> None:
    """Without a word of the model: it is very near, and says nothing more."""
    assert len(contain(edits({"op": "add", "text": text}), matches, "s", OPTIONS)) == made


def test_facts_of_one_answer_are_compared_with_each_other_and_with_what_stays() -> None:
    """The first one counts; what is dropped makes room for what is added."""
    found = edits(
        {"op": "delete", "id": "m1"},
        {"op": "add", "text": "likes tea a lot"},
        {"op": "add", "text": "likes tea"},
        {"op": "add", "text": "owns a dog"},
    )
    matches = ((NearEntry(TEA, 0.99),), (NearEntry(TEA, 1.0),), ())
    among: tuple[tuple[float, ...], ...] = ((), (0.95,), (0.1, 0.1))
    made = contain(found, NearEntries(matches, among), "s", OPTIONS)
    assert shape(made) == [
        ("delete", "", "likes tea"),
        ("add", "likes tea a lot", ""),
        ("add", "owns a dog", ""),
    ]


def test_a_memory_is_changed_in_so_many_sessions_at_most() -> None:
    """What a further one says is a memory of its own; one that has changed it may again."""
    full = memory("likes tea", "s0", *(f"s{n}" for n in range(1, MOST_SESSIONS + 1)))
    change = (Edit(action="update", text="loves tea", target=full),)
    for session, action in (("s0", "update"), ("s7", "update"), ("new", "add")):
        assert contain(change, near((full, 0.8)), session, OPTIONS)[0].action == action


def turn(number: int, user: str | None = "u", role: str = "user") -> Turn:
    """Build a turn."""
    return msgspec.convert(
        {"message_id": f"m{number}", "role": role, "content": f"said {number}", "user_id": user},
        Turn,
    )


@pytest.mark.parametrize(
    ("read", "unread"),
    [(None, [0, 1, 3, 4]), ("m0", [1, 3, 4]), ("m3", [4]), ("m4", []), ("?", [0, 1, 3, 4])],
)
def test_what_is_unread_is_what_came_after(read: str | None, unread: list[int]) -> None:
    """Of this user and of one not named; from the start where the message is unknown."""
    turns = (turn(0), turn(1, role="assistant"), turn(2, "v"), turn(3, None), turn(4))
    reading = Reading(user_id="u", flow="session", session_id="s")
    lesson = Lesson(reading, "u", turns, turn(5, role="assistant"))
    assert [one.message_id for one in lesson.unread(read)] == [f"m{number}" for number in unread]


def test_the_nearest_of_each_sentence_are_shown_on_a_line_each() -> None:
    """Each once, by a short id, with its type and its day."""
    matches = ((NearEntry(TEA), NearEntry(memory("a\nb"))), (NearEntry(CAT), NearEntry(TEA)))
    known = extraction.shown(NearEntries(matches))
    assert [(short, one.text) for short, one in known.items()] == [
        ("m1", "likes tea"),
        ("m2", "owns a cat"),
        ("m3", "a\nb"),
    ]
    prompt = str(extraction.question("gpt-4.1", known, (turn(1),)).messages[-1].content)
    assert "[m3] a b（plan，2026-09-21）\n\n新的对话：\nuser: said 1" in prompt


def test_a_memory_that_is_longer_than_a_fact_is_neither_shown_nor_changed() -> None:
    """Imported ones have any length; what is learnt is stored beside them."""
    page = memory("likes tea " + "x" * LONGEST)
    assert extraction.shown(NearEntries(((NearEntry(page), NearEntry(TEA)),))) == {"m1": TEA}
    change = (Edit(action="update", text=page.text + " too", target=page),)
    assert contain(change, near((page, 0.99)), "s", OPTIONS)[0].action == "add"


def test_a_long_message_is_compared_sentence_by_sentence() -> None:
    """The last ones, each once, cut to what a fact can be; replies are no facts of the user."""
    said = msgspec.structs.replace(turn(1), content="一。二！ Hi. Yes; no\n一。" + "x" * 600)
    found = extraction.sentences((said, turn(2, role="assistant")))
    assert found == ("一。", "二！", "Hi.", "Yes;", "no", "x" * LONGEST)
