"""Questions to a human: forms, answers, and the two operations that carry them."""

from __future__ import annotations

import math
from typing import Final, Literal, assert_never

import msgspec

FormValue = str | int | float | bool | tuple[str, ...] | None


class FormField(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One field of a form."""

    name: str
    label: str
    type: Literal["text", "number", "boolean", "choice", "list"]
    required: bool
    value: FormValue = None
    options: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question put to a human."""

    title: str
    fields: tuple[FormField, ...]


class OpenQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Arguments of `human.open`; `kind` is the flow's own word for the question."""

    form: Form
    kind: str = ""
    session_id: str | None = None


class OpenedQuestion(msgspec.Struct, frozen=True):
    """Result of `human.open`: the id by which the answer comes."""

    hitl_id: str


class AwaitAnswer(msgspec.Struct, frozen=True):
    """Arguments of `human.answer`."""

    hitl_id: str


class HumanAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `human.answer`."""

    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] = {}
    by: str | None = None


_TOO_LARGE: Final = 1 << 63
"""A whole number that does not fit into 64 bits: no encoder takes it."""
LONGEST: Final = 65_536
"""Characters a field may be answered with: as many as a message may have."""


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field of an answer."""

    field: str
    code: Literal["required", "type", "option", "too_long", "unknown_field"]


def values(form: Form, answer: HumanAnswer) -> dict[str, FormValue]:
    """Give every field its value: what the form proposed, overridden by what was answered."""
    return {field.name: answer.data.get(field.name, field.value) for field in form.fields}


def check_answer(form: Form, answer: HumanAnswer) -> tuple[FieldProblem, ...]:
    """Tell what is wrong with an answer, in the form's order; nothing can be with a rejection."""
    if answer.action == "reject":
        return ()
    given = values(form, answer)
    known = [problem for field in form.fields if (problem := _check(field, given[field.name]))]
    return (
        *known,
        *(FieldProblem(name, "unknown_field") for name in answer.data if name not in given),
    )


def _check(field: FormField, value: FormValue) -> FieldProblem | None:
    if _is_empty(value):
        return FieldProblem(field.name, "required") if field.required else None
    if not _has_type(field, value):
        return FieldProblem(field.name, "type")
    if _length(value) > LONGEST:
        return FieldProblem(field.name, "too_long")
    return None if _is_offered(field, value) else FieldProblem(field.name, "option")


def _is_empty(value: FormValue) -> bool:
    """Whether a value says nothing; False and 0 do say something."""
    return value is None or value == () or (isinstance(value, str) and not value.strip())


def _length(value: FormValue) -> int:
    """Count the characters of a text, or of all in a list with a comma each."""
    if isinstance(value, tuple):
        return sum(len(item) + 1 for item in value)
    return len(value) if isinstance(value, str) else 0


def _has_type(field: FormField, value: FormValue) -> bool:
    match field.type:
        case "text" | "choice":
            return isinstance(value, str)
        case "number":
            return _is_number(value)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
        case _:
            assert_never(field.type)


def _is_number(value: FormValue) -> bool:
    """Whether a value is a number that can be written down; JSON may bring others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _TOO_LARGE if isinstance(value, int) else math.isfinite(value)


def _is_offered(field: FormField, value: FormValue) -> bool:
    """Whether a choice, or every item of a list that has options, is one of the options."""
    match field.type:
        case "choice":
            return value in field.options
        case "list" if field.options and isinstance(value, tuple):
            return set(value) <= set(field.options)
        case _:
            return True
