"""A second answer behind the first: only where it begins with what was sent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contract.model import Chunk, ToolCallDelta, Usage
from effects.model.splice import MAX_CHUNKS, AnswerMismatch, SentAnswer


def spliced(sent: Sequence[Chunk], second: Sequence[Chunk]) -> list[Chunk]:
    """Return what the caller gets of the second answer."""
    said = SentAnswer()
    said.note(sent)
    splice = said.splice()
    assert splice is not None
    new = splice.feed(second)
    splice.end()
    return new


def call(arguments: str, call_id: str = "call_1", name: str = "add") -> Chunk:
    """Make the chunk that opens a tool call."""
    return Chunk(tool_calls=(ToolCallDelta(0, call_id, name, arguments),))


def more(arguments: str) -> Chunk:
    """Make a chunk that goes on with a tool call."""
    return Chunk(tool_calls=(ToolCallDelta(0, arguments=arguments),))


def test_the_rest_goes_out_and_nothing_twice() -> None:
    """However the second answer is cut; model, finish reason and usage are the second's."""
    sent = [Chunk(text="Hel", model="first"), Chunk(text="lo")]
    second = [
        Chunk(text="Hello, w", model="second"),
        Chunk(text="orld", finish="stop"),
        Chunk(usage=Usage(1, 2, 3)),
    ]
    assert spliced(sent, second) == [
        Chunk(text=", w", model="second"),
        Chunk(text="orld", finish="stop"),
        Chunk(usage=Usage(1, 2, 3)),
    ]


def test_nothing_was_said() -> None:
    """Then there is nothing to put anything behind."""
    assert (SentAnswer().splice(), SentAnswer().extent) == (None, "nothing")


@pytest.mark.parametrize(
    "second",
    [
        [Chunk(text="Help")],
        [Chunk(reasoning="Hello")],
        [Chunk(text="Hel"), Chunk(finish="stop")],
        [Chunk(text="Hel")],
        [Chunk(reasoning="hm"), Chunk(text="Hello")],
        [call("{}")],
    ],
)
def test_another_answer_is_none(second: list[Chunk]) -> None:
    """Another text, a shorter one, one that thinks or calls first."""
    with pytest.raises(AnswerMismatch):
        spliced([Chunk(text="Hello")], second)


def test_reasoning_counts_in_its_order() -> None:
    """It may go on only where the first answer had not gone beyond it."""
    thought = [Chunk(reasoning="hm")]
    assert spliced(thought, [Chunk(reasoning="hmm"), Chunk(text="a")]) == [
        Chunk(reasoning="m"),
        Chunk(text="a"),
    ]
    with pytest.raises(AnswerMismatch):
        spliced([*thought, Chunk(text="a")], [Chunk(reasoning="hmm"), Chunk(text="a")])
    with pytest.raises(AnswerMismatch):
        spliced([*thought, Chunk(text="a")], [*thought, Chunk(reasoning="m"), Chunk(text="a")])


def test_a_tool_call_goes_on_when_it_is_the_same() -> None:
    """By id, name and arguments."""
    sent = [call('{"a":')]
    assert spliced(sent, [call('{"a":1'), more("}"), Chunk(finish="tool_calls")]) == [
        more("1"),
        more("}"),
        Chunk(finish="tool_calls"),
    ]
    assert spliced([call("")], [call("{}")]) == [more("{}")]
    for other in (call('{"a":1', call_id="call_2"), call('{"a":1', name="sub"), call('{"b":1')):
        with pytest.raises(AnswerMismatch):
            spliced(sent, [other])


def test_one_chunk_may_end_what_was_sent_and_begin_what_was_not() -> None:
    """Text after reasoning in one chunk; a second call in one chunk with the first."""
    assert spliced([Chunk(reasoning="hm")], [Chunk(reasoning="hm", text="a", model="m")]) == [
        Chunk(text="a", model="m")
    ]
    two = Chunk(
        tool_calls=(ToolCallDelta(0, "call_1", "add", "{}"), ToolCallDelta(1, "call_2", "sub"))
    )
    assert spliced([call("{}")], [two]) == [Chunk(tool_calls=(two.tool_calls[1],))]


def test_an_answer_beyond_all_bounds_is_not_kept() -> None:
    """Comparing it would cost the memory of all others."""
    said = SentAnswer()
    said.note([Chunk(text="a")] * MAX_CHUNKS)
    assert said.extent == "something"
    said.note([Chunk(text="a")])
    assert (said.extent, said.splice()) == ("too_much", None)


pieces = st.lists(
    st.sampled_from("ab").map(lambda text: Chunk(text=text))
    | st.sampled_from("ab").map(lambda text: Chunk(reasoning=text))
    | st.sampled_from("ab").map(more),
    max_size=8,
)


def joined(chunks: Sequence[Chunk]) -> str:
    """Spell an answer out: one letter for what each character is, and the character."""
    spelt = ""
    for chunk in chunks:
        spelt += "".join("r" + letter for letter in chunk.reasoning)
        spelt += "".join("t" + letter for letter in chunk.text)
        for delta in chunk.tool_calls:
            spelt += "".join("c" + letter for letter in delta.arguments)
    return spelt


@given(pieces, pieces)
def test_it_splices_exactly_where_one_begins_with_the_other(
    sent: list[Chunk], second: list[Chunk]
) -> None:
    """And then both together are the second answer."""
    assume(sent)
    if joined(second).startswith(joined(sent)):
        assert joined(sent) + joined(spliced(sent, second)) == joined(second)
    else:
        with pytest.raises(AnswerMismatch):
            spliced(sent, second)


@given(pieces, st.integers(0, 8))
def test_an_answer_goes_on_behind_its_own_beginning(answer: list[Chunk], cut: int) -> None:
    """Wherever it was cut."""
    sent = answer[:cut]
    assume(sent)
    assert joined(sent) + joined(spliced(sent, answer)) == joined(answer)
