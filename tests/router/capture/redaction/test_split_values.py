"""A value that was streamed in pieces is found, whatever the cuts and wherever it stands."""

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.records import RunRecord
from contract.wire import Dialect, EventDecoder, built_in
from tests.router.capture.redaction import exchanges as ex

VALUES = {
    "email": "li.lei+x@mail.example.cn",
    "phone": "138 1234-5678",
    "id_card": "11010519491231002X",
    "card": "4111 1111 1111 1111",
    "api_key": "sk-proj-Abcd1234_efgh-5678",
}
BEFORE, AFTER = "请联系：", "，谢谢 ok"

PLAIN = EventDecoder(Dialect(payload="text", terminal=("[END]",)))
PIECES = EventDecoder(built_in()["text"])

Place = Callable[[Sequence[str]], tuple[RunRecord, EventDecoder]]

PLACES: dict[str, Place] = {
    "model text": lambda ps: (ex.run(ex.model(*ex.text_chunks(ps))), ex.GROWING),
    "model reasoning": lambda ps: (ex.run(ex.model(*ex.reasoning_chunks(ps))), ex.GROWING),
    "model audio": lambda ps: (ex.run(ex.model(*ex.audio_chunks(ps))), ex.GROWING),
    "tool arguments": lambda ps: (ex.run(ex.model(*ex.argument_chunks(ps))), ex.GROWING),
    "delta frames": lambda ps: (ex.run(frames=ex.delta_frames(ps)), ex.DELTAS),
    "plain frames": lambda ps: (ex.run(frames=ex.plain_frames(ps)), PLAIN),
    "plain text": lambda ps: (ex.run(frames=list(ps)), PIECES),
    "growing frames": lambda ps: (ex.run(frames=ex.growing_frames(ps)), ex.GROWING),
    "growing reasoning": lambda ps: (
        ex.run(frames=ex.growing_frames(ps, "reason_content")),
        ex.GROWING,
    ),
}


def redacted(place: str, pieces: Sequence[str]) -> RunRecord:
    """Redact an exchange with the pieces in one place."""
    record, decoder = PLACES[place](pieces)
    return ex.redactor().exchange([record], decoder)[0]


@pytest.mark.untraced
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_every_cut(place: str, name: str) -> None:
    """No cut hides a value, and what stands around it stays."""
    value = VALUES[name]
    text = BEFORE + value + AFTER
    for cut in range(1, len(text)):
        found = redacted(place, ex.pieces_of(text, [cut]))
        left = ex.stored(found)
        assert value not in left
        assert value[:-1] not in left
        assert f"{BEFORE}<{name}:" in left
        assert AFTER in left


@given(
    place=st.sampled_from(sorted(PLACES)),
    value=st.sampled_from(sorted(VALUES.values())),
    around=st.tuples(
        st.text('你好 ,。abc"\\', max_size=12), st.text('你好 ,。abc"\\', max_size=12)
    ),
    data=st.data(),
)
def test_any_cuts(place: str, value: str, around: tuple[str, str], data: st.DataObject) -> None:
    """Into any number of pieces, between any texts."""
    text = f"{around[0]} {value} {around[1]}"
    cuts = data.draw(st.lists(st.integers(1, len(text) - 1)))
    assert value not in ex.stored(redacted(place, ex.pieces_of(text, cuts)))


@pytest.mark.parametrize(
    ("frames", "kept"),
    [
        (["data: a bob@exa\n\n", "data:mple.com b\n\n"], ["data: a \n\n", "data: {} b\n\n"]),
        (
            ["event: x\r\nid: 1\r\ndata: one\r\ndata:  bob@example.com\r\n\r\n"],
            ["event: x\r\nid: 1\r\ndata: one\r\ndata:  {}\r\n\r\n"],
        ),
        (["data: 13812345678\n\n"], ["data: {}\n\n"]),
        (['data: {"a":"bob@example.com"}\n\n'], ['data: {{"a":"{}"}}\n\n']),
        (["data: bob@ex\n\n", ": ping\n\n", "data: ample.com\n\n", "data: [END]\n\n"], None),
    ],
)
def test_frames_without_json_stay_as_they_are_around_a_value(
    frames: list[str], kept: list[str] | None
) -> None:
    """Lines, fields and line ends; comments and the terminal event are no text."""
    found = ex.redactor().exchange([ex.run(frames=frames)], PLAIN)[0]
    texts = [text for _, text in found.frames]
    pseudonym = "<" + "".join(texts).partition("<")[2].partition(">")[0] + ">"
    if kept is None:
        kept = ["data: \n\n", frames[1], "data: {}\n\n", frames[3]]
    assert texts == [one.format(pseudonym) if "{}" in one else one for one in kept]


def test_plain_text_stays_as_it_is_around_a_value() -> None:
    """White space, line ends, what looks like lines of an event stream, and empty pieces."""
    frames = [" a\r\n\ndata: [DONE]\n", "", "bob@exa", "mple.com", " b\n"]
    [found] = ex.redactor().exchange([ex.run(frames=frames)], PIECES)
    texts = [text for _, text in found.frames]
    assert [texts[0], texts[1], texts[2], texts[4]] == [frames[0], "", "", frames[4]]
    assert texts[3].startswith("<email:")
    assert texts[3].endswith(">")


@pytest.mark.parametrize("cut", range(1, 17))
def test_the_pseudonym_goes_into_the_piece_where_the_value_ends(cut: int) -> None:
    """As a whole; pieces, their number and their stamps stay."""
    text = "a bob@example.com b"
    found = redacted("model text", [text[:2], text[2 : 2 + cut - 1], text[1 + cut :]])
    items = [msgspec.json.decode(item) for item in (found.tape or ())[0].items]
    assert [item.get("at", 0) for item in items] == [0, 1, 2]
    texts = [item.get("text", "") for item in items]
    whole = [text for text in texts if "<email:" in text]
    assert len(whole) == 1
    assert "".join(texts).startswith("a <email:")
    assert "".join(texts).endswith("> b")


def test_a_growing_text_is_cut_back_to_before_the_value() -> None:
    """A frame that ends inside a value ends before it; growth is never broken."""
    found = redacted("growing frames", ["hi ", "bob@", "example", ".com", " bye"])
    texts = [ex.content(text) for _, text in found.frames]
    name = texts[3].removeprefix("hi ")
    assert texts == ["hi ", "hi ", "hi ", f"hi {name}", f"hi {name} bye"]
    assert name.startswith("<email:")


def test_a_stream_that_broke_off_inside_a_known_value_is_cut() -> None:
    """The beginning of a value known from elsewhere does not survive either."""
    record = ex.run(
        ex.model(*ex.text_chunks(["write to li.lei", "@exam"])),
        body={"message_id": "m", "content": "I am li.lei@example.com"},
        frames=ex.growing_frames(["write to li.lei", "@exam"]),
    )
    left = ex.stored(ex.redactor().exchange([record], ex.GROWING)[0])
    assert "li.lei" not in left
    assert "write to " in left


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_value_escaped_inside_arguments_that_are_cut_anywhere(cut: int) -> None:
    """A model may write any character as an escape, and a cut may fall inside it."""
    text = '{"to": "\\u674e\\u96f7 b\\u006fb@example.com", "n": 13812345678, "k": [1.5]}'
    record = ex.run(
        ex.model(*ex.argument_chunks([text[:cut], text[cut:]])),
        body={"message_id": "m", "user_name": "李雷"},
    )
    found = ex.redactor().exchange([record], ex.GROWING)[0]
    arguments = msgspec.json.decode(ex.streams(found)[2])
    assert arguments["to"].startswith("<user_name:")
    assert "<email:" in arguments["to"]
    assert arguments["n"].startswith("<phone:")
    assert arguments["k"] == [1.5]


def test_halves_of_characters_hide_nothing() -> None:
    """A service that counts in UTF-16 cuts between them: only an escape can carry a half."""
    pieces = ["\ud83d", "\ude00 li.lei@mail", ".example.cn \ud83d", "\ude00"]
    frames = [f"event: text\ndata: {json.dumps({'content': piece})}\n\n" for piece in pieces]
    (stored,) = ex.redactor().exchange([ex.run(frames=frames)], ex.DELTAS)
    said = [json.loads(text.partition("data: ")[2])["content"] for _, text in stored.frames]
    whole = "".join(said)
    assert "li.lei" not in whole
    assert "<email:" in whole
    assert (whole[:2], whole[-2:]) == ("\ud83d\ude00", "\ud83d\ude00")


def test_half_a_character_in_json_within_a_text_costs_no_capture() -> None:
    """A request with one is recorded as any other."""
    said = r'{"a": "\ud83d", "b": "li.lei@mail.example.cn"}'
    (stored,) = ex.redactor().exchange([ex.run(body={"content": said})], ex.DELTAS)
    assert stored.request is not None
    body = bytes(stored.request.body)
    assert b"<email:" in body
    assert b"li.lei" not in body
