"""The companion's rules: what is proposed to be remembered, and what a model is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flow import Request
from contract.flows.companion import TEXT_NAMES, CompanionOptions, ImageTurn, MessageTurn
from contract.human import FormValue, HumanAnswer
from contract.stores import Turn
from rules import companion as rules
from rules.conversation import NOTHING, summary
from rules.emotion import CALM
from rules.memories import Fact, approved_facts, confident_facts, memory_form

FACTS = (Fact("likes tea", 0.9), Fact("has a cat", 0.3))
ASKED = memory_form(FACTS, "?", "{number} ({confidence})")


def turn(content: str, number: int = 0) -> Turn:
    """Build a turn of a user."""
    return Turn(message_id=f"m{number}", role="user", content=content, chat_id="s")


def asked(body: MessageTurn | ImageTurn, **options: object) -> rules.CompanionRequest:
    """Build a request."""
    return Request(body, CompanionOptions(**options))  # type: ignore[arg-type] # by name


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
