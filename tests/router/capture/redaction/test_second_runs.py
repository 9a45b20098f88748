"""A second run that is redacted later than the served one: comparable, and as free of data."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.records import PlayRecord, RunRecord
from router.capture.redaction import ExchangeValues, Redactor
from tests.router.capture.redaction import exchanges as ex
from tests.support.records import raw

EMAIL, OTHER, NAME = "li.lei@example.com", "ann@example.org", "Bob"
PHONE = "138 1234-5678"
WORDS = [f" {word} " for word in (EMAIL, OTHER, NAME, "Bobby", "hello", PHONE, "，")]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)
asked = st.sampled_from([(), ({"to": EMAIL},), ({"to": NAME},)])


def second(texts: list[str], *asked: object) -> RunRecord:
    """Return a shadow that says these words; what it asked otherwise is with its plays."""
    plays = [
        PlayRecord(port="memory", op="write", site="s", how="nearest", args=raw(one))
        for one in asked
    ]
    run = ex.run(frames=ex.growing_frames(texts), plays=plays)
    return msgspec.structs.replace(run, role="shadow", stack="graph", request=None, tape=None)


def served(texts: list[str], *, name: str = NAME) -> RunRecord:
    """Return a served run of a user of this name, who gives an address."""
    return ex.run(
        ex.model(*ex.text_chunks(texts), said=f"I am {EMAIL}"),
        body={"message_id": "m", "user_name": name, "content": f"I am {EMAIL}"},
        frames=ex.growing_frames(texts),
    )


def apart(
    serving: RunRecord, shadow: RunRecord, redactor: Redactor | None = None
) -> tuple[RunRecord, RunRecord]:
    """Redact one after the other, as the router writes them."""
    redactor, values = redactor or ex.redactor(), ExchangeValues()
    (first,) = redactor.exchange([serving], ex.GROWING, values=values)
    assert values.learned
    (last,) = redactor.exchange([shadow], ex.GROWING, values=values)
    return first, last


@given(words=texts, others=texts, asked=asked)
def test_the_second_line_is_that_of_one_dictionary_over_both_runs(
    words: list[str], others: list[str], asked: tuple[object, ...]
) -> None:
    """To the byte; nothing of the served run's data is left in it, though it has no request."""
    one, other = served(words), second(others, *asked)
    _, last = apart(one, other)
    assert last == ex.redactor().exchange([one, other], ex.GROWING)[1]
    assert last.redacted
    left = ex.stored(last).replace("Bobby", "")
    assert not [value for value in (EMAIL, OTHER, NAME, PHONE) if value in left]


@given(words=texts, asked=asked)
def test_what_is_equal_before_is_equal_after(words: list[str], asked: tuple[object, ...]) -> None:
    """A second run that says the same has the same frames, redacted apart or together."""
    one, other = served(words), second(words, *asked)
    first, last = apart(one, other)
    assert first.frames == last.frames
    assert [first, last] == ex.redactor().exchange([one, other], ex.GROWING)


def test_what_only_the_second_run_says_is_redacted_there() -> None:
    """The served line is what it would be without a second run."""
    one, other = served(["hello"]), second([OTHER])
    first, last = apart(one, other)
    assert [first] == ex.redactor().exchange([one], ex.GROWING)
    assert OTHER not in ex.stored(last)
    assert "<email:" in ex.stored(last)


@pytest.mark.parametrize("quick", [True, False])
def test_what_is_packed_at_once_knows_the_same(*, quick: bool) -> None:
    """A name that a path of the request leads to is looked for in the second run's frames."""
    serving = msgspec.structs.replace(served(["hello"]), tape=None)
    body = msgspec.Raw(b'{"message_id":"m","user_name":"Bob","content":"hello"}')
    assert serving.request is not None
    request = msgspec.structs.replace(serving.request, body=body)
    serving = msgspec.structs.replace(serving, request=request)
    redactor, values = ex.redactor(), ExchangeValues()
    assert redactor.at_once([serving], ex.GROWING, values=values) is not None
    assert values.learned
    shadow = second(["hello" if quick else NAME])
    found = redactor.at_once([shadow], ex.GROWING, values=values)
    assert (found is not None) == quick
    (last,) = found or redactor.exchange([shadow], ex.GROWING, values=values)
    assert last.redacted
    assert NAME not in ex.stored(last)
