"""Dialects as files: what comes along is sound, and what cannot be meant is refused by its key."""

import tomllib
from importlib import resources
from pathlib import Path

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


REFUSED = tomllib.loads(Path(__file__).with_name("refused.toml").read_text("utf-8"))


@pytest.mark.parametrize(("part", "instead", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(part: str, instead: str, reason: str) -> None:
    """The error names the file, the key and the nearest name."""
    assert part in OWN
    with pytest.raises(DialectRefused) as refused:
        read_dialect(OWN.replace(part, instead), "own.toml")
    assert str(refused.value).startswith(f"own.toml: {reason}")


def test_an_unknown_dialect_names_the_nearest() -> None:
    """Of those that come along."""
    assert find_dialect("responses").name == "responses"
    with pytest.raises(DialectRefused, match="no such dialect; did you mean 'chat-completions'"):
        find_dialect("chat-completion")
