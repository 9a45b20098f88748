"""The file of rules: read strictly, refused with file, key and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.rules import NO_RULES, read_rules, rules_of
from compare.rules.table import rule_text, scope_text
from contract.declarations import DeclarationRefused

EVERY = r"""
[[ignore]]
flow = "chat"
call = "conversations.put@reply"
path = "turn.message_id"

[[replace]]
pattern = '\d{4}-\d\d-\d\d'
with = "<date>"

[[unordered]]
event = "SEND"
path = "sources"

[[tolerance]]
layer = "effects"
path = "temperature"
absolute = 0.01
relative = 0.05
"""


def refusal(text: str) -> str:
    """Read rules that are wrong; returns what is said about them."""
    with pytest.raises(DeclarationRefused) as refused:
        rules_of(text, "diff.toml")
    return str(refused.value)


def test_every_kind_of_rule_is_read_and_said() -> None:
    """What the report shows is what the file says."""
    rules = [
        (key, rule_text(rule), scope_text(rule)) for key, rule in rules_of(EVERY, "f").numbered()
    ]
    assert rules == [
        ("ignore[0]", "ignore turn.message_id", "flow chat, call conversations.put@reply"),
        ("replace[0]", r"read /\d{4}-\d\d-\d\d/ as '<date>'", "everywhere"),
        ("unordered[0]", "order of sources does not count", "event SEND"),
        ("tolerance[0]", "temperature may be apart by 0.01 or 5 %", "layer effects"),
    ]


def test_an_empty_file_holds_no_rules() -> None:
    """Nothing is ignored by itself."""
    assert rules_of("", "f") == NO_RULES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[ignored]]", "diff.toml: ignored: unknown key; did you mean 'ignore'?"),
        (
            '[[ignore]]\npath = "a"\nevnt = "SEND"',
            "diff.toml: ignore[0].evnt: unknown key; did you mean 'event'?",
        ),
        ('[[ignore]]\npath = "a"\nzzz = 1', "known: call, event"),
        ("[[ignore]]", "diff.toml: ignore[0]: Object missing required field `path`"),
        ('[[ignore]]\npath = ""', "diff.toml: ignore[0].path: a path is due"),
        ('[[ignore]]\npath = "."', "path: '.' is no path from character 1 on, '.': a key is due"),
        ('[[ignore]]\npath = "a[x"', "'a[x' is no path from character 2 on, '[x': brackets hold"),
        ('[[unordered]]\npath = "["', "unordered[0].path: '[' is no path from character 1 on"),
        ('[[replace]]\npattern = "a"\nwith = ""\npath = "a..b"', "from character 2 on, '..b'"),
        ('[[tolerance]]\npath = "a[0]b"\nabsolute = 1', "on, 'b': a dot is due behind brackets"),
        ("[[ignore]]\npath = 3", "diff.toml: ignore[0].path: Expected `str`, got `int`"),
        ('[[replace]]\npattern = "("\nwith = ""', "replace[0].pattern: '(' is no regular"),
        ('[[replace]]\npattern = "a"\nwith = "\\\\1"', "replace[0].with: '\\\\1' cannot stand"),
        (
            '[[replace]]\npattern = "(?x)a # b"\nwith = "\\\\g<n>"',
            "for a match: unknown group",
        ),
        ('[[tolerance]]\npath = "a"', "tolerance[0].absolute: say how far apart"),
        ('[[tolerance]]\npath = "a"\nrelative = -1', "relative: -1.0 is not a finite number"),
        ('[[tolerance]]\npath = "a"\nabsolute = nan', "absolute: nan is not a finite number"),
        ('[[ignore]]\npath = "a"\nevent = "E"\ncall = "a.b"', "not for both"),
        ('[[ignore]]\npath = "a"\ncall = "model"', "'model' is not 'port.operation'"),
        ('[[ignore]]\npath = "a"\nlayer = "text"', "the final text has no paths"),
        ('[[ignore]]\npath = "a"\nevent = "E"\nlayer = "effects"', "an event is in layer 'frames'"),
        ('[[ignore]]\npath = "a"\ncall = "a.b"\nlayer = "text"', "a call is in layer 'effects'"),
        ("[[ignore", "diff.toml: not TOML:"),
    ],
)
def test_what_is_wrong_is_refused_with_its_key(text: str, said: str) -> None:
    """A rule that is misspelt would hide nothing, or too much."""
    assert said in refusal(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Missing, and not text."""
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    for name in ("none.toml", "bad.toml"):
        with pytest.raises(DeclarationRefused, match=name):
            read_rules(tmp_path / name)
