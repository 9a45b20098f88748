"""`diff.toml`: what each rule lets pass, and which files are refused."""

from typing import Any

import pytest

from compare.differences import read_rules
from cutover.errors import Unusable
from tests.compare.test_differences import DONE, brief, compared, noted, run, said

PASSES: dict[str, tuple[str, Any, Any]] = {
    "a field": ('[[ignore]]\npath = "note.at"', noted({"at": 1}), noted({"at": 2})),
    "the only field": ('[[ignore]]\npath = "note.a.at"', noted({"a": {"at": 1}}), noted({})),
    "fields in lists": (
        '[[ignore]]\npath = "note[].at"',
        *(noted([{"at": 1}, {"at": 2, "b": 1}]), noted([{"b": 1}])),
    ),
    "any field": ('[[ignore]]\nname = "no*"\npath = "*.at"', noted({"at": 1}), noted({"at": 2})),
    "a whole event": ('[[ignore]]\nname = "noted"', noted(1), None),
    "a channel that is late": ('[[ignore]]\nname = "text"', (1, said("a")), (9000, said("a"))),
    "a channel": ('[[ignore]]\nname = "text"', said("a"), said("b")),
    "a pattern in a text": (
        '[[replace]]\npattern = "order \\\\d+"\nby = "order N"',
        *(said("order 12 is on its way"), said("order 3 is on its way")),
    ),
    "a pattern in a field": (
        '[[replace]]\nname = "noted"\npattern = "v(\\\\d).*"\nby = "v\\\\1"',
        *(noted("v1.2"), noted("v1.3")),
    ),
    "a list's order": (
        '[[unordered]]\npath = "note[]"',
        *(noted([1, {"a": 2}]), noted([{"a": 2}, 1])),
    ),
    "a number": (
        '[[tolerance]]\npath = "note.cost"\nby = 0.1',
        *(noted({"cost": 1}), noted({"cost": 1.05})),
    ),
}


@pytest.mark.parametrize("row", PASSES)
def test_a_rule_lets_pass(row: str) -> None:
    """What it names, and leaves no trace of it; it counts where it was of use."""
    text, *both = PASSES[row]
    legacy, graph = (run(*([one] if one else []), DONE) for one in both)
    assert not compared(legacy, graph).equal
    rules = read_rules(text)
    found = compared(legacy, graph, rules=rules)
    assert found.differences == ()
    assert [one for one in found.left_out if one.startswith("by a rule: ")]


STAYS: dict[str, tuple[str, str, str, str]] = {
    "another field": (
        '[[ignore]]\npath = "note.at"',
        *(noted({"at": 1, "b": 1}), noted({"at": 2, "b": 2})),
        "event_changed noted note.b",
    ),
    "another flow": (
        '[[ignore]]\nflow = "chat"\npath = "note"',
        *(noted(1), noted(2), "event_changed noted note"),
    ),
    "another name": (
        '[[replace]]\nname = "other"\npattern = ".*"\nby = ""',
        *(said("a"), said("b"), "text text"),
    ),
    "other items": (
        '[[unordered]]\npath = "note[]"',
        *(noted([1, 2]), noted([2, 3]), "event_changed noted note[]"),
    ),
    "too far apart": (
        '[[tolerance]]\npath = "note"\nby = 0.1',
        *(noted(1), noted(1.2), "event_changed noted note"),
    ),
    "no number": (
        '[[tolerance]]\npath = "note"\nby = 1',
        *(noted(1), noted("1"), "event_changed noted note"),
    ),
}


@pytest.mark.parametrize("row", STAYS)
def test_what_a_rule_does_not_name_is_found(row: str) -> None:
    """At its own place."""
    text, legacy, graph, expected = STAYS[row]
    found = compared(run(legacy, DONE), run(graph, DONE), rules=read_rules(text))
    assert set(brief(found)) == {expected}


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("[[ignored]]", "ignored", "did you mean 'ignore'?"),
        ('[[ignore]]\nnmae = "a"', "ignore[0].nmae", "did you mean 'name'?"),
        ("[[tolerance]]\nby = 1", "tolerance[0]", "missing required field `path`"),
        ('[[tolerance]]\npath = "a"\nby = "1"', "tolerance[0].by", "Expected `float`"),
        ('[[replace]]\npattern = "("\nby = ""', "replace[0].pattern", "unterminated"),
        ('[[replace]]\npattern = "a"\nby = "\\\\1"', "replace[0].pattern", "invalid group"),
        ("[[", "", "Invalid"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(text: str, key: str, reason: str) -> None:
    """With the key, and the nearest name."""
    with pytest.raises(Unusable) as refused:
        read_rules(text)
    assert refused.value.where == key
    assert reason in str(refused.value)
