"""Texts that are hard to read: escapes in prose, odd frames, values inside one another."""

import msgspec
import pytest

from contract.model import Chunk
from contract.wire import Dialect, EventDecoder, EventNames
from router.capture.pseudonyms import unescaped, views
from router.config.patterns import Pattern, compile_patterns
from tests.router.capture.redaction import exchanges as ex

NDJSON = EventDecoder(
    Dialect(framing="ndjson", event=EventNames(path="type"), text={"text": "data.content"})
)


def said(text: str, **patterns: str) -> str:
    """Redact what a user said."""
    record = ex.run(body={"message_id": "m", "content": text})
    found = ex.redactor(patterns=compile_patterns(patterns)).exchange([record], ex.GROWING)[0]
    return str(ex.body(found)["content"])


PLAIN = said("bob@example.com")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"line\nbob@example.com", rf"line\n{PLAIN}"),
        (r"see \u0062ob@example.com!", f"see {PLAIN}!"),
        (r"bob@example.co\u006d", PLAIN),
        (r"a \\u0062ob@example.com", f"a {PLAIN}"),
        (r"C:\temp\x", r"C:\temp\x"),
        (
            '{"a": "bob@example.com", "b": [1, 2.50, true]}',
            f'{{"a": "{PLAIN}", "b": [1, 2.50, true]}}',
        ),
        ('{"bob@example.com": 1', f'{{"{PLAIN}": 1'),
        ('["[\\"bob@example.com\\"]"]', f'["[\\"{PLAIN}\\"]"]'),
    ],
)
def test_escapes_in_prose_and_json(text: str, expected: str) -> None:
    """The value goes, in whatever way it is written, and nothing around it."""
    assert said(text) == expected


def test_a_number_deep_inside_becomes_a_string_of_that_depth() -> None:
    """JSON in JSON stays JSON."""
    inner = msgspec.json.encode({"tel": 13812345678}).decode()
    outer = msgspec.json.encode({"a": inner, "b": [13812345678]}).decode()
    tree = msgspec.json.decode(said(outer))
    assert tree["b"][0].startswith("<phone:")
    assert msgspec.json.decode(tree["a"])["tel"] == tree["b"][0]


def test_the_views_of_a_text_lead_back_to_it() -> None:
    """Every place of a view is a place of the text."""
    text = r"x \ud83d\ude00 \u00e9 \"q\" \n"
    plain = unescaped(text)
    assert plain.text == 'x \U0001f600 \u00e9 "q" \n'
    assert len(plain.at) == len(plain.text) + 1
    assert text[plain.at[2] : plain.at[3]] == r"\ud83d\ude00"
    deep = [view for view in views('{"k": "{\\"n\\": \\"v\\"}"}') if view.text == "v"]
    assert [view.depth for view in deep] == [2]


def test_a_pattern_that_matches_pseudonyms_leaves_them() -> None:
    """Redacting again changes nothing, whatever the patterns."""
    once = said("id 0a1b2c3d4e5f", trace="[0-9a-f]{12}")
    assert once.startswith("id <trace:")
    assert said(once, trace="[0-9a-f]{12}") == once


def test_a_value_inside_another_is_learnt_too() -> None:
    """Each of two overlapping values goes where it stands alone and no pattern would see it."""
    patterns = {"ticket": "T-[0-9]{6}(?= open)", "order": "[0-9]{6} open"}
    text = said("T-123456 open; closed T-123456.", **patterns)
    assert "123456" not in text


@pytest.mark.parametrize("cut", range(1, 15))
def test_frames_of_lines_of_json(cut: int) -> None:
    """Newline-delimited JSON is a wire like any other."""
    value = "bob@example.com"
    trees = [
        {"type": "text", "data": {"content": piece}} for piece in (value[:cut], value[cut:], " x")
    ]
    frames = [msgspec.json.encode(tree).decode() + "\n" for tree in trees]
    found = ex.redactor().exchange([ex.run(frames=frames)], NDJSON)[0]
    after = [msgspec.json.decode(text)["data"]["content"] for _, text in found.frames]
    assert after == ["", PLAIN, " x"]
    assert all(text.endswith("}\n") for _, text in found.frames)


def test_data_on_several_lines() -> None:
    """Data may be spread over lines; it comes out on one, line ends as they were."""
    frame = 'event: text\r\ndata: {"content":\r\ndata: "bob@example.com"}\r\n\r\n'
    found = ex.redactor().exchange([ex.run(frames=[frame])], ex.DELTAS)[0]
    assert found.frames[0][1] == f'event: text\r\ndata: {{"content":"{PLAIN}"}}\r\n\r\n'


def test_a_stream_nobody_understands_is_redacted_piece_by_piece() -> None:
    """Items that are no chunks are still texts."""
    odd = ex.entry(
        "model", "stream", {}, {"text": 3, "note": "bob@example.com"}, ["bob@example.com"]
    )
    entry = msgspec.structs.replace(odd, items=(odd.items[0],))
    found = ex.redactor().exchange([ex.run(entry)], ex.GROWING)[0]
    assert PLAIN in ex.encoded(found)
    assert "bob@" not in ex.encoded(found)


def test_a_tool_s_name_and_a_model_s_name_are_texts_too() -> None:
    """Whatever a provider puts there."""
    chunk = Chunk(text="x", model="bob@example.com")
    found = ex.redactor().exchange([ex.run(ex.model(chunk))], ex.GROWING)[0]
    assert "bob@" not in ex.encoded(found)


def test_a_pattern_without_marks_always_looks() -> None:
    """Only the built-in ones know what to look for first."""
    assert Pattern("x", compile_patterns({"x": "a"}).all[-1].expression).possible(b"", b"")
