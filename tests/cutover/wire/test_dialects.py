"""Dialects as files: what comes along is sound, and what cannot be meant is refused by its key."""

from importlib import resources

import pytest

from cutover.wire import Dialect, DialectRefused, Reader, built_in, find_dialect, read_dialect

OWN = """
framing = "sse"
[names]
path = "kind"
[[events]]
name = "token"
texts = [{ channel = "content", path = "value" }]
[[events]]
name = "bye"
says = "end"
[end]
"""


def test_eight_dialects_come_along() -> None:
    """Each has its file's name."""
    names = "ag-ui ai-sdk anthropic chat-completions langgraph ndjson responses text"
    assert list(built_in()) == names.split()
    assert [dialect.name for dialect in built_in().values()] == names.split()
    assert all(isinstance(dialect, Dialect) for dialect in built_in().values())


def test_the_files_are_part_of_the_package() -> None:
    """They are found as the package's resources, so a wheel must hold them."""
    folder = resources.files("cutover.wire") / "dialects"
    assert {one.name for one in folder.iterdir()} == {f"{name}.toml" for name in built_in()}


def test_a_dialect_of_ones_own_is_ten_lines() -> None:
    """What it does not declare has a default."""
    reader = Reader(read_dialect(OWN, "own.toml", "own"))
    reader.feed(b'data: {"kind":"token","value":"Hi"}\n\ndata: {"kind":"bye"}\n\n')
    assert (dict(reader.texts), type(reader.ending).__name__) == ({"content": "Hi"}, "Completed")


REFUSED = {
    "a misspelt key at the top": (
        OWN.replace("framing", "framming"),
        "framming: no such key; did you mean 'framing'?",
    ),
    "a misspelt key of an event": (
        OWN.replace("says", "say"),
        "events[1].say: no such key; did you mean 'says'?",
    ),
    "a misspelt key of a text": (
        OWN.replace("channel", "chanel"),
        "events[0].texts[0].chanel: no such key; did you mean 'channel'?",
    ),
    "a misspelt table": (OWN.replace("[end]", "[ends]"), "ends: no such key; did you mean 'end'?"),
    "a key of another table": (
        OWN.replace("[end]", "[end]\npath = 'x'"),
        "end.path: no such key; known are body, failing, finish, unmarked",
    ),
    "a key that is missing": (OWN.replace('framing = "sse"', ""), "framing: is missing"),
    "a value that is none": (
        OWN.replace('"end"', '"ends"'),
        "events[1].says: Invalid enum value 'ends'",
    ),
    "a value of another type": (OWN.replace('"bye"', "7"), "events[1].name: Expected"),
    "a path that is none": (
        OWN.replace('"value"', '"value..text"'),
        "events[0].texts[0].path: is no path: a path is like",
    ),
    "a path that ends anywhere": (
        OWN.replace('"value"', '"value.**"'),
        "events[0].texts[0].path: is no path: a path is like",
    ),
    "a place of a condition that is no path": (
        OWN.replace("says", 'when = { "a..b" = 1 }\nsays'),
        "events[1].when: is no path",
    ),
    "no end": (OWN.replace('says = "end"', ""), 'end: no event says "end"'),
    "a mark without an event": (
        OWN.replace('path = "kind"', 'path = "kind"\nmarks = ["[DONE]"]'),
        "names.marks: no event is called '[DONE]'",
    ),
    "a default without an event": (
        OWN.replace('path = "kind"', 'default = "tokn"'),
        "names.default: no event is called 'tokn'; did you mean 'token'?",
    ),
    "no TOML": ("framing = ", "Invalid value (at end of document)"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(text: str, reason: str) -> None:
    """The error names the file, the key and the nearest name."""
    with pytest.raises(DialectRefused) as refused:
        read_dialect(text, "own.toml")
    assert str(refused.value).startswith(f"own.toml: {reason}")


def test_an_unknown_dialect_names_the_nearest() -> None:
    """Of those that come along."""
    assert find_dialect("responses").name == "responses"
    with pytest.raises(DialectRefused, match="no such dialect; did you mean 'chat-completions'"):
        find_dialect("chat-completion")
