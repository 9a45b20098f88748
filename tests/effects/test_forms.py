"""Answers held against their forms, and humans who give them."""

from __future__ import annotations

import pytest

from contract.errors import EffectFailed, Paused
from contract.human import (
    FieldProblem,
    Form,
    FormField,
    FormValue,
    HumanAnswer,
    OpenQuestion,
    check_answer,
    values,
)
from contract.ports import Human
from effects.local import NoHuman, ScriptedHuman

FORM = Form(
    "记忆",
    (
        FormField("note", "备注", "text", required=False),
        FormField("name", "名字", "text", required=True, value="小明"),
        FormField("age", "年龄", "number", required=False),
        FormField("sure", "确定", "boolean", required=True, value=False),
        FormField("colour", "颜色", "choice", required=False, options=("红", "蓝")),
        FormField("facts", "事实", "list", required=False, options=("a", "b")),
        FormField("tags", "标签", "list", required=False),
    ),
)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"note": "x", "age": 3, "colour": "红", "facts": ("a", "b"), "tags": ("whatever",)},
        {"age": 1.5, "sure": True},
        {"note": None, "facts": (), "age": 0},
        {"note": ""},
        {"note": "x" * 65_536, "tags": ("x",) * 32_768},
    ],
)
def test_a_fitting_answer_has_no_problems(data: dict[str, FormValue]) -> None:
    """What is not said stands as proposed; False and 0 are values."""
    assert check_answer(FORM, HumanAnswer("edit", data)) == ()
    assert check_answer(FORM, HumanAnswer("approve", data)) == ()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"name": ""}, FieldProblem("name", "required")),
        ({"name": "  "}, FieldProblem("name", "required")),
        ({"name": None}, FieldProblem("name", "required")),
        ({"sure": None}, FieldProblem("sure", "required")),
        ({"name": 3}, FieldProblem("name", "type")),
        ({"age": "3"}, FieldProblem("age", "type")),
        ({"age": True}, FieldProblem("age", "type")),
        ({"age": float("nan")}, FieldProblem("age", "type")),
        ({"age": 1 << 63}, FieldProblem("age", "type")),
        ({"age": -(10**400)}, FieldProblem("age", "type")),
        ({"sure": 1}, FieldProblem("sure", "type")),
        ({"sure": "yes"}, FieldProblem("sure", "type")),
        ({"name": "x" * 65_537}, FieldProblem("name", "too_long")),
        ({"tags": ("",) * 65_537}, FieldProblem("tags", "too_long")),
        ({"colour": "绿"}, FieldProblem("colour", "option")),
        ({"colour": ("红",)}, FieldProblem("colour", "type")),
        ({"facts": "a"}, FieldProblem("facts", "type")),
        ({"facts": ("a", "c")}, FieldProblem("facts", "option")),
        ({"tags": ("x", 1)}, FieldProblem("tags", "type")),
        ({"other": 1}, FieldProblem("other", "unknown_field")),
    ],
)
def test_a_problem_is_named(data: dict[str, FormValue], problem: FieldProblem) -> None:
    """By field and kind."""
    assert check_answer(FORM, HumanAnswer("edit", data)) == (problem,)


EMPTY = Form("?", (FormField("why", "原因", "text", required=True),))


@pytest.mark.parametrize(
    ("form", "answer", "fields"),
    [
        (FORM, HumanAnswer("edit", {"x": 1, "colour": "绿", "name": 1}), ["name", "colour", "x"]),
        (FORM, HumanAnswer("reject", {"name": 1}), []),
        (EMPTY, HumanAnswer("approve"), ["why"]),
    ],
    ids=["in the order of the form", "a rejection needs no form", "required without a proposal"],
)
def test_all_problems_are_told(form: Form, answer: HumanAnswer, fields: list[str]) -> None:
    """Unknown fields come last."""
    assert [problem.field for problem in check_answer(form, answer)] == fields


def test_values_are_proposals_overridden_by_the_answer() -> None:
    """In the order of the form; unknown fields do not get in."""
    given = values(FORM, HumanAnswer("edit", {"age": 3, "x": 1, "name": None}))
    assert list(given) == [field.name for field in FORM.fields]
    assert (given["age"], given["name"], given["sure"]) == (3, None, False)


async def test_a_scripted_human_answers_in_order() -> None:
    """Then leaves the question open; an unknown id is no question."""
    yes = HumanAnswer("approve")
    human = ScriptedHuman([yes])
    question = OpenQuestion(FORM, "confirm")
    first, second = [await human.open("ask", question) for _ in range(2)]
    assert await human.answer("ask", first) == yes
    for hitl_id in (second, "hitl-99"):
        with pytest.raises(Paused, match=hitl_id):
            await human.answer("ask", hitl_id)
    assert human.questions == {first: question, second: question}


async def test_nobody_answers() -> None:
    """Asking is a fault, reading an answer too."""
    human: Human = NoHuman()
    with pytest.raises(EffectFailed, match="human_unavailable"):
        await human.open("ask", OpenQuestion(FORM))
    with pytest.raises(EffectFailed, match="human_unavailable"):
        await human.answer("ask", "h1")
