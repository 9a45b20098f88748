"""The companion's rules: what is proposed to be remembered, and what a model is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flow import Request
from contract.flows.companion import (
    COMPANION,
    TEXT_NAMES,
    CompanionOptions,
    ImageTurn,
    MessageTurn,
)
from contract.human import FormValue, HumanAnswer
from contract.records import RequestRecord
from contract.stores import Turn
from rules import companion as rules
from rules.conversation import NOTHING, full_summary, summary
from rules.emotion import CALM
from rules.memories import Fact, approved_facts, confident_facts, memory_form

FACTS = (Fact("likes tea", 0.9), Fact("has a cat", 0.3))
ASKED = memory_form(FACTS, "?", "{number} ({confidence})")


def turn(content: str, number: int = 0) -> Turn:
    """Build a turn of a user."""
    return Turn(message_id=f"m{number}", role="user", content=content, chat_id="s")


def asked(body: MessageTurn | ImageTurn, **options: Any) -> rules.CompanionRequest:
    """Build a request."""
    return Request(body, CompanionOptions(**options))


def test_a_proposal_says_how_sure_it_is() -> None:
    """A text each, proposed as it was found."""
    assert [(it.name, it.label, it.value) for it in ASKED.fields] == [
        ("memory_1", "1 (0.90)", "likes tea"),
        ("memory_2", "2 (0.30)", "has a cat"),
    ]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (HumanAnswer("approve"), FACTS),
        (HumanAnswer("reject", {"memory_1": "x"}), ()),
        (HumanAnswer("edit", {"memory_1": " "}), FACTS[1:]),
        (HumanAnswer("edit", {"memory_1": "likes coffee"}), (Fact("likes coffee"), FACTS[1])),
        (HumanAnswer("edit", {"memory_2": "likes tea"}), (FACTS[0],)),
        (HumanAnswer("edit", {"memory_1": None, "memory_2": "\x00"}), ()),
    ],
)
def test_the_user_decides_which_facts_are_stored(
    answer: HumanAnswer, kept: tuple[Fact, ...]
) -> None:
    """Approved, edited, emptied or rejected."""
    assert approved_facts(FACTS, ASKED, answer) == kept


@given(st.dictionaries(st.sampled_from(["memory_1", "memory_2"]), st.none() | st.text()))
def test_no_answer_breaks_the_keeping(data: dict[str, FormValue]) -> None:
    """And what is kept can be stored."""
    for fact in approved_facts(FACTS, ASKED, HumanAnswer("edit", data)):
        assert fact.text.strip()
        assert "\x00" not in fact.text


@pytest.mark.parametrize(
    "answer",
    [
        '{"memories":[{"text":"a","confidence":0.3},{"text":"b","confidence":0.29}]}',
        'Here:\n```json\n[{"content":"a","confidence":1},{"text":7,"confidence":1}]\n```\nDone.',
        'Sure! {"memories":[{"text":"a","confidence":0.5},{"text":"b","confidence":"high"}, 3]}',
    ],
)
def test_what_is_unsure_or_no_fact_is_left_out(answer: str) -> None:
    """In a fence, in prose, among wrong types."""
    assert [fact.text for fact in confident_facts(answer, 0.3)] == ["a"]


def test_a_fence_that_is_never_closed_is_read_once() -> None:
    """Models run on in white space until they are stopped; a second look a space would be hours."""
    assert confident_facts("```json" + "\n" * 1_000_000, 0.3) == ()


def test_a_conversation_is_summed_up() -> None:
    """How long it is, and what is shown no more, clipped and on one line."""
    turns = [turn(f"topic {n}\n" + "x" * 50, n) for n in range(6)]
    assert summary([], []) == NOTHING
    assert summary(turns, turns) == "此前共有 6 条消息。"
    told = summary(turns, turns[4:])
    assert "topic 0" not in told
    assert "topic 1 xxx" in told
    assert "topic 3 xxx" in told
    assert "…" in told


def talk(*contents: str) -> list[Turn]:
    """Return turns of a user and an assistant in turn."""
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    return [
        Turn(message_id=f"m{n}", role=roles[n % 2], content=content, chat_id="s")
        for n, content in enumerate(contents)
    ]


def test_a_full_summary_says_how_it_began_what_it_was_about_and_what_was_asked() -> None:
    """Of what is shown no more the first is quoted once; an answer's question is not the user's."""
    said = ("hi", "paints\nand brushes", "cats", "dogs? Or birds!", "now")
    turns = talk(*(content for one in said for content in (one, "and you?")))
    assert full_summary([], [], 100) == NOTHING
    assert full_summary(turns, turns[6:], 100) == (
        "此前共有 10 条消息：用户 5 条，你 5 条。对话从这里开始：「hi」。"
        "更早时用户还说过：「paints and brushes」；「cats」。用户最近的问题：「dogs?」。"
    )
    cut = full_summary(turns, turns, 10)
    assert cut.startswith("此前至少有 10 条消息：用户 5 条，你 5 条。能看到的最早一句：「hi」。")
    assert "更早" not in cut


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("好。你叫什么？", "你叫什么？"),
        ("Really?? Yes.", "Really??"),
        ("one? two? three.", "two?"),
        ("看 http://x.org/?q=1 吧", ""),
        ("好吗?我等你", "好吗?"),
        ("?!？", ""),
        ("no", ""),
        ("x" * 99 + "?", "x" * 40 + "…"),
    ],
)
def test_the_last_question_is_a_sentence_of_its_own(said: str, question: str) -> None:
    """On one line, cut at forty characters."""
    shown = f"用户最近的问题：「{question}」。" if question else "。"
    assert full_summary(talk(said), [], 100).endswith(shown)
    assert ("问题" in full_summary(talk(said), [], 100)) == bool(question)


@given(st.lists(st.text(min_size=1), max_size=9), st.integers(0, 9))
def test_a_full_summary_is_bounded(contents: list[str], hidden: int) -> None:
    """Five quotes, each of forty characters, on one line."""
    turns = talk(*contents)
    found = full_summary(turns, turns[hidden:], 100)
    assert len(found) < 5 * 45 + 100
    assert len(found.splitlines()) == 1


@pytest.mark.parametrize("summary_", ["full", "brief"])
def test_the_prompt_has_the_summary_of_its_options(summary_: Literal["full", "brief"]) -> None:
    """A record of an earlier version has the brief one."""
    turns = talk("hi?", "hello")
    found = rules.working_memory(CompanionOptions(summary=summary_), turns, turns)
    assert (found == summary(turns, turns)) == (summary_ == "brief")
    record = RequestRecord(msgspec.Raw(b'{"session_id":"s","message":"m"}'), msgspec.Raw(b"{}"))
    assert COMPANION.request_of(record).options == CompanionOptions(summary="brief")


def test_the_prompt_says_what_is_known() -> None:
    """Every parameter is there, with what fills it where nothing is known."""
    given_ = rules.prompt(
        datetime(2026, 1, 1, tzinfo=UTC),
        asked(MessageTurn(session_id="s", message="hi"), timezone="Asia/Shanghai"),
        (CALM, rules.memories_text(())),
        (),
        (),
    )
    assert given_["current_time"] == "08:00:00"
    assert given_["emotion"] == "neutral"
    assert given_["memories"] == rules.NO_MEMORIES


def test_every_text_can_be_configured() -> None:
    """What the options take is what there is; values are filled in, braces or not."""
    assert rules.TEXTS.keys() == TEXT_NAMES
    body = MessageTurn(session_id="s", message="hi")
    assert rules.text(asked(body), "remembered", count=2) == "\n\n已记住 2 条。"
    mine = asked(body, texts={"remembered": "{x} {count"})
    assert rules.text(mine, "remembered", count=2) == "{x} {count"


def test_without_a_user_memories_are_the_sessions_own() -> None:
    """Another user's are never found by accident."""
    assert rules.owner(MessageTurn(session_id="s", message="hi")) == "session:s"
    assert rules.owner(MessageTurn(session_id="s", message="hi", user_id="u")) == "u"


@pytest.mark.parametrize(
    ("read", "may_be", "is_none"),
    [
        ("", True, True),
        ("NO_", True, False),
        (" NO_TEXT.", True, True),
        ("NO_TEXT in here", False, False),
        ("发票", False, False),
    ],
)
def test_a_picture_without_text_is_recognised(
    read: str,
    *,
    may_be: bool,
    is_none: bool,
) -> None:
    """As soon as a model says anything else, that is text."""
    assert (rules.may_be_no_text(read), rules.no_text(read)) == (may_be, is_none)
