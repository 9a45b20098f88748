"""Paths into JSON: what they lead to, and that nothing else changes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.rules.texts import Rewritten, expression_of
from compare.rules.values import REMOVED, changed
from contract.wire.paths import path_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab{[", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


def without(value: Any, path: str) -> Any:
    """Take out what a path leads to."""
    return changed(value, path_of(path), lambda _: REMOVED)


WHOLE = {"a": {"id": 1, "x": 1}, "list": [{"id": 2}, {"id": 3}], "args": '{"id":4}'}


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("a.id", {"a": {"x": 1}}),
        ("*.id", {"a": {"x": 1}, "args": "{}"}),
        ("list[].id", {"list": [{}, {}]}),
        ("list[1]", {"list": [{"id": 2}]}),
        ("**.id", {"a": {"x": 1}, "list": [{}, {}], "args": "{}"}),
        ("nothing.here", {}),
    ],
)
def test_a_path_leads_where_reports_say(path: str, left: dict[str, object]) -> None:
    """Keys, `*`, indices, any depth, and into JSON that is held as text."""
    assert without(WHOLE, path) == WHOLE | left


@given(JSON, st.sampled_from(["a", "*", "**", "a.*", "**.b", "a.b.c"]))
def test_a_change_that_changes_nothing_gives_the_value_itself(value: object, path: str) -> None:
    """So what no rule touches is not written again."""
    assert changed(value, path_of(path), lambda held: held) is value


@given(JSON)
def test_any_depth_reaches_every_key(value: object) -> None:
    """Nothing of that name is left, except in text that was no JSON."""
    left = msgspec.json.encode(without(value, "**.a")).decode()
    assert '"a":' not in left


def test_text_that_is_nested_too_deep_is_left_as_it_is() -> None:
    """It may be anything that begins like JSON."""
    value = {"a": "[" * 9_999}
    assert without(value, "**.b") is value


def test_a_value_that_is_nested_too_deep_is_left_as_it_is() -> None:
    """It can be read, and not be walked through."""
    value = msgspec.json.decode(b'{"a":' * 900 + b"1" + b"}" * 900)
    assert without(value, "**.b") is value
    assert without({"b": value}, "b") == {}


@given(st.text("ab12 ", max_size=30), st.integers(0, 30))
def test_a_place_moves_with_what_stands_before_it(text: str, at: int) -> None:
    """What is in front of a place after replacing is what replacing what was in front gives."""
    at = min(at, len(text))
    rewritten = Rewritten(text)
    rewritten.replace(expression_of("[12]"), "<digit>")
    assert rewritten.text == re.sub("[12]", "<digit>", text)
    assert rewritten.text[: rewritten.moved(at)] == re.sub("[12]", "<digit>", text[:at])
