"""Whether two answers are of one dialect."""

from __future__ import annotations

from contract.flows import SPECS
from cutover.recognition import Agreement, Recognised, agree, recognise
from tests.support.recorded_answers import WORDS, answer_of
from tests.support.recorded_bodies import TOLD, Story, sse


def agreed(old: bytes, new: bytes, framing: str = "sse") -> Agreement:
    """Recognise two bodies, and compare what was recognised."""
    found = [recognise(answer_of(body, framing), SPECS) for body in (old, new)]
    first, second = (one for one in found if isinstance(one, Recognised))
    return agree(first, second, SPECS)


def own(*words: str, **beside: object) -> bytes:
    """Send words in events of a format of its own."""
    pieces = [sse({"text": word, **beside}, "token") for word in words]
    return b"".join([*pieces, sse({}, "done")])


def test_two_answers_of_one_built_in_dialect_agree() -> None:
    """Whatever they say."""
    openai = TOLD["openai"]
    found = agreed(openai(Story()), openai(Story(number=3, pieces=("other",), thoughts=())))
    assert (found.same, found.old.name, found.new.name) == (True, "openai", "openai")
    assert found.notes == ()


def test_a_proposal_is_for_both_and_learns_from_both() -> None:
    """The second answer may have a field that does not count, and events of its own."""
    new = sse({"name": "search"}, "tool") + own(*WORDS, node="agent")
    found = agreed(own(*WORDS), new)
    assert found.same
    assert found.old.dialect.text == {"token": "text"}
    assert found.old.dialect.ignore == {"token": ("node",)}
    assert found.notes == ("only the new one sends tool",)


def test_the_new_services_dialect_is_taken_where_it_alone_reads_both() -> None:
    """The old one sends an event at the end that the new one lacks: it ends no stream of both."""
    new = sse({"answer": "Yes."}, "result")
    found = agreed(new + sse({}, "done"), new)
    assert found.same
    assert (found.old.dialect.terminal, found.notes) == ((), ("only the old service sends done",))


def test_two_formats_are_two() -> None:
    """No dialect reads both."""
    found = agreed(TOLD["openai"](Story()), TOLD["ai-sdk"](Story()))
    assert (found.same, found.old.name, found.new.name) == (False, "openai", "ai-sdk")
    assert not agreed(TOLD["openai"](Story()), own(*WORDS)).same
