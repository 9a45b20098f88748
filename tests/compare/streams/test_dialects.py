"""Files of dialects: what is misspelt is refused, with file, key and the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.streams.dialects import RecordedDialect, find_dialect, read_dialect
from contract.declarations import DeclarationRefused
from contract.flows import SPECS
from contract.flows.chat import CHAT
from contract.grammar import Step, many, maybe, one
from contract.wire import built_in, dialect_of
from tests.support.recorded_bodies import DIALECTS


def test_every_built_in_dialect_is_sound() -> None:
    """And every one has a story in these tests."""
    assert {*built_in(), *SPECS} == set(DIALECTS)
    assert [find_dialect(name, SPECS).name for name in DIALECTS] == list(DIALECTS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('framming = "sse"', "d.toml: framming: unknown key; did you mean 'framing'?"),
        ('framing = "grpc"', "d.toml: framing: Invalid enum value 'grpc'"),
        ("[event]\npaths = 'a'", "d.toml: event.paths: unknown key; did you mean 'path'?"),
        ("[tools]\nidx = 'a'", "d.toml: tools.idx: unknown key; did you mean"),
        ("[text]\n'*' = 3", "d.toml: text"),
        ("[text]\n'*' = ''", "d.toml: text.*: a path is due, such as 'a.b'"),
        ("[text]\n'*' = []", "d.toml: text.*: a path is due, and the list is empty"),
        ("[ignore]\nx = ['a', '.']", "d.toml: ignore.x: '.' is no path from character 1 on"),
        ("[ignore]\nx = ['a.**']", "d.toml: ignore.x: 'a.**': '**' is for rules"),
        ("[text]\nx = { path = 'a[', growth = 'delta' }", "d.toml: text.x: 'a[' is no path"),
        ("[required]\nx = { 'a..b' = 'string' }", "d.toml: required.x: 'a..b' is no path"),
        ("[errors]\ncode = 'a]'", "d.toml: errors.code: 'a]' is no path from character 2 on"),
        ("[tools]\nat = 'a[x]'", "d.toml: tools.at: 'a[x]' is no path"),
        ("[tools]\nname = ''", "d.toml: tools.name: a path is due"),
        ("[event]\npath = '.type'", "d.toml: event.path: '.type' is no path from character 1"),
        ("[required]\nx = { a = 'text' }", "d.toml: required"),
        ("[grammar]\nsteps = []", "d.toml: grammar.steps: a step is due"),
        (
            "[grammar]\nsteps = [{ one = 'a', many = 'b' }]",
            "d.toml: grammar.steps[0]: one of one, maybe, some, many is due",
        ),
        ("[grammar]\nsteps = [{ once = 'a' }]", "unknown key; did you mean 'one'?"),
        ('payload = "text"\n[event]\npath = "a"', "d.toml: event.path: text has no paths"),
        ('payload = "text"\n[event]\nsuffix = "a"', "d.toml: event.suffix: text has no paths"),
        ("[event]\nsuffix = 'a['", "d.toml: event.suffix: 'a[' is no path"),
        ("[ids]\nx = 'a..b'", "d.toml: ids.x: 'a..b' is no path"),
        ("[tools]\narguments = ['a', '']", "d.toml: tools.arguments: a path is due"),
        (
            'framing = "text"\nterminal = ["end"]',
            "d.toml: terminal: plain text ends where its body",
        ),
        ("framing", "d.toml: not TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(DeclarationRefused) as refused:
        dialect_of(text, "d.toml", "d")
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    """A misspelt name is told from a missing file by what is near."""
    with pytest.raises(DeclarationRefused, match="did you mean 'openai'"):
        find_dialect("openapi", SPECS)
    known = "built in: ai-sdk, anthropic-messages, chat, companion, langgraph, ndjson"
    with pytest.raises(DeclarationRefused, match=known):
        find_dialect("./nowhere.toml", SPECS)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Whatever it is."""
    (tmp_path / "d.toml").write_bytes(b"\xff")
    with pytest.raises(DeclarationRefused, match="not UTF-8 at byte 0"):
        read_dialect(tmp_path / "d.toml")


def test_a_byte_order_mark_is_taken_off(tmp_path: Path) -> None:
    """Editors of another age put it there."""
    (tmp_path / "d.toml").write_text('framing = "ndjson"', encoding="utf-8-sig")
    assert read_dialect(tmp_path / "d.toml").framing == "ndjson"


def test_a_file_is_called_what_it_says_or_as_it_is_named(tmp_path: Path) -> None:
    """The name is the flow's in the report."""
    (tmp_path / "mine.toml").write_text("")
    assert find_dialect(str(tmp_path / "mine.toml"), SPECS).name == "mine"
    (tmp_path / "mine.toml").write_text('name = "ours"')
    assert find_dialect(str(tmp_path / "mine.toml"), SPECS).name == "ours"


def test_a_grammar_is_read_step_by_step() -> None:
    """A star is every name that was met and no step has."""
    text = """
        terminal = ["done"]
        growth = "cumulative"
        [text]
        say = "t"
        [grammar]
        steps = [{ one = "begin" }, { maybe = ["a", "b"] }, { some = "say" }, { many = "*" },
                 { one = "done" }]
    """
    spoken_names = frozenset({"begin", "say", "x", "y", "done"})
    wire = RecordedDialect(dialect_of(text, "d.toml", "d")).wire(spoken_names)
    steps = wire.grammar.steps
    assert steps[:2] == (one("begin"), maybe("a", "b"))
    assert steps[2] == Step(frozenset({"say"}), 1, None)
    assert steps[3:] == (many("x", "y"), one("done"))
    assert set(wire.grammar.growing) == {"say"}


def test_a_flow_keeps_its_own_grammar() -> None:
    """Its dialect is written down anew, its grammar is not."""
    wire = find_dialect("chat", SPECS).wire(frozenset({"SEND"}))
    assert wire.grammar is CHAT.grammar
