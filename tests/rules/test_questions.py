"""Questions to the user: which forms can be put, and what becomes of a round with one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.human import Form, FormField, HumanAnswer
from contract.model import ToolCall, ToolSpec
from rules.questions import NAME, SPEC, answer_result, offer, read_form, sort_calls

FORM = (
    '{"title":"Which?","fields":[{"name":"colour","label":"Colour","type":"choice",'
    '"options":["red","blue"],"value":"red","required":true}]}'
)
READ = Form(
    "Which?",
    (FormField("colour", "Colour", "choice", required=True, value="red", options=("red", "blue")),),
)


def test_a_form_is_read() -> None:
    """As the client will be shown it."""
    assert read_form(FORM) == READ


def field(**more: object) -> str:
    """Write a form with one field."""
    one = {"name": "a", "label": "A", "type": "text", **more}
    return msgspec.json.encode({"title": "t", "fields": [one]}).decode()


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "[]",
        "null",
        '{"title":"t","fields":[]}',
        '{"title":"","fields":[{"name":"a","label":"A","type":"text"}]}',
        field(type="colour"),
        field(type="choice"),
        field(type="choice", options=["x", "x"]),
        field(type="choice", options=["x"], value="y"),
        field(type="number", value="1"),
        field(value=1),
        field(name="a b"),
        field(name=""),
        field(unknown=1),
        field(label=["x"]),
        field(value={"x": 1}),
        field(value="x" * 4_001),
        field(value="\x00"),
        field(type="list", value=["x"] * 101),
        field(type="choice", options=[str(number) for number in range(101)]),
        field(type="number", value=0).replace(":0", ":" + "9" * 400),
        '{"title":"t","fields":[{"name":"a","label":"A"},{"name":"a","label":"B"}]}',
        "[" * 100_000,
    ],
)
def test_a_bad_form_is_none(arguments: str) -> None:
    """Whatever a model wrote."""
    assert read_form(arguments) is None


@given(st.text(max_size=50))
def test_no_text_breaks_the_reading(text: str) -> None:
    """A form, or none."""
    read_form(text)


def test_the_first_form_is_the_question_and_a_second_is_an_error() -> None:
    """The other calls run first; a bad form does not take a good one's place."""
    calls = (
        ToolCall("a", NAME, "{}"),
        ToolCall("b", NAME, FORM),
        ToolCall("c", "dice", "{}"),
        ToolCall("d", NAME, FORM),
    )
    found = sort_calls(calls, asking=True)
    assert found.runs == (calls[2],)
    assert found.question is not None
    assert (found.question.call, found.question.form) == (calls[1], READ)
    assert {key: it.error for key, it in found.refused.items()} == {
        "a": "bad_arguments",
        "d": "tool_failed",
    }
    assert [call.id for call in found.before] == ["a", "c", "d"]


def test_without_asking_ask_human_is_a_tool_like_any_other() -> None:
    """Fields that the form does not have."""
    call = ToolCall("a", NAME, FORM)
    assert sort_calls((call,), asking=False).runs == (call,)


def test_the_tool_is_offered_last_and_is_ours() -> None:
    """One of the same name is not offered beside it."""
    other = ToolSpec(NAME, "?", msgspec.Raw(b"{}"))
    dice = ToolSpec("dice", "?", msgspec.Raw(b"{}"))
    assert offer((other, dice), asking=True) == (dice, SPEC)
    assert offer((other, dice), asking=False) == (other, dice)


def test_the_tool_result_holds_action_and_values() -> None:
    """The whole form, or that it was rejected."""
    assert answer_result(READ, HumanAnswer("approve")).content == (
        '{"action":"approve","data":{"colour":"red"}}'
    )
    edited = answer_result(READ, HumanAnswer("edit", {"colour": "blue"}))
    assert edited.content == '{"action":"edit","data":{"colour":"blue"}}'
    assert (
        answer_result(READ, HumanAnswer("reject", {"colour": "blue"})).content
        == '{"action":"reject"}'
    )
