"""Grammars: the checker accepts exactly what a regular expression made of the steps accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contract.errors import GrammarViolated
from contract.grammar import Grammar, GrammarCheck, Step, many, maybe, one

NAMES = "abcde"


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Draw one step."""
    least = draw(st.integers(0, 3))
    most = draw(st.none() | st.integers(max(least, 1), 4))
    return Step(
        frozenset(draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=2))), least, most
    )


def unambiguous(grammar: Grammar) -> bool:
    """Whether no name can be read as two steps at once, as in every grammar of a flow."""
    for position, step in enumerate(grammar.steps):
        seen = set(step.names)
        for after in grammar.steps[position + 1 :]:
            if seen & after.names:
                return False
            seen |= after.names
            if after.least > 0:
                break
    return True


def pattern(step: Step, least: int | None = None) -> str:
    """Write a step as a regular expression over one-letter names."""
    letters = "".join(sorted(step.names))
    most = "" if step.most is None else step.most
    return f"[{letters}]{{{step.least if least is None else least},{most}}}"


def whole(grammar: Grammar) -> re.Pattern[str]:
    """Write a grammar as a regular expression of complete streams."""
    return re.compile("".join(map(pattern, grammar.steps)))


def begun(grammar: Grammar) -> re.Pattern[str]:
    """Write a grammar as a regular expression of all beginnings of its streams."""
    ways = [
        "".join(map(pattern, grammar.steps[:position])) + pattern(step, 0)
        for position, step in enumerate(grammar.steps)
    ]
    return re.compile("|".join(f"(?:{way})" for way in ways))


grammars = st.lists(steps(), min_size=1, max_size=5).map(lambda made: Grammar(tuple(made)))


@pytest.mark.untraced
@given(grammars, st.text(NAMES, max_size=12))
def test_the_checker_agrees_with_a_regular_expression(grammar: Grammar, stream: str) -> None:
    """Event by event: what is accepted, what is expected next, and where a stream may end."""
    assume(unambiguous(grammar))
    check, beginning, complete = GrammarCheck(grammar), begun(grammar), whole(grammar)
    for position, name in enumerate(stream):
        before = stream[:position]
        allowed = {name for name in NAMES if beginning.fullmatch(before + name)}
        assert set(check.expected) == allowed
        assert check.complete == bool(complete.fullmatch(before))
        if name not in allowed:
            with pytest.raises(GrammarViolated):
                check.event(name)
            return
        check.event(name)


@pytest.mark.untraced
@given(grammars, st.data())
def test_every_stream_a_grammar_describes_is_accepted(
    grammar: Grammar, data: st.DataObject
) -> None:
    """Streams drawn from the regular expression itself: accepted, and complete at their end."""
    assume(unambiguous(grammar))
    check = GrammarCheck(grammar)
    for name in data.draw(st.from_regex(whole(grammar), fullmatch=True)):
        check.event(name)
    assert check.complete


def test_a_violation_names_what_was_due() -> None:
    """The message is for the flow's author; the checker's position is unchanged."""
    check = GrammarCheck(Grammar((one("begin"), many("text"), maybe("note"), one("end", "error"))))
    check.event("begin")
    with pytest.raises(GrammarViolated) as violation:
        check.event("begin")
    assert violation.value.got == "begin"
    assert violation.value.expected == ("text", "note", "end", "error") == check.expected
    check.event("text")


def test_nothing_is_due_after_the_last_event() -> None:
    """A complete stream takes no further event."""
    check = GrammarCheck(Grammar((one("end"),)))
    before = check.complete
    check.event("end")
    assert (before, check.complete, check.expected) == (False, True, ())
    with pytest.raises(GrammarViolated):
        check.event("end")


def test_the_terminal_events_are_those_of_the_last_step() -> None:
    """They end a stream on the wire."""
    assert Grammar((many("text"), one("done", "error"))).terminal == {"done", "error"}


def test_a_growing_text_may_not_shrink_or_change() -> None:
    """Cumulative fields that share a track grow together; others are left alone."""
    grammar = Grammar(
        (many("send", "other"), one("success")), growing={"send": "content", "success": "content"}
    )
    check = GrammarCheck(grammar)
    check.event("send", "Hel")
    check.event("other", "anything")
    check.event("send", "Hello")
    check.event("send", "Hello")
    for shrunk in ("Hell", "", "Jello there"):
        with pytest.raises(GrammarViolated):
            check.event("send", shrunk)
    check.event("send", None)
    with pytest.raises(GrammarViolated):
        check.event("success", "Hell")


@given(st.lists(st.text(max_size=4), max_size=8))
def test_any_text_that_only_grows_is_accepted(pieces: list[str]) -> None:
    """Growth by any pieces, empty ones included."""
    check = GrammarCheck(Grammar((many("send"),), growing={"send": "content"}))
    text = ""
    for piece in pieces:
        text += piece
        check.event("send", text)
    assert check.complete
