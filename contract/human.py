"""Questions to a human: forms, answers, and the two operations that carry them."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

FormValue = str | int | float | bool | tuple[str, ...] | None


MAX_FIELD_LENGTH: Final = 65_536
"""Characters of a field's value: as many as a message may have."""
_TOO_LARGE: Final = 1 << 63
"""Whole numbers from here on do not fit into 64 bits: no encoder takes them."""


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
    """Arguments of `human.open`; `kind` is the flow's name for this sort of question."""

    form: Form
    kind: str = ""
    session_id: str | None = None


class OpenedQuestion(msgspec.Struct, frozen=True):
    """Result of `human.open`: the id by which the answer comes."""

    hitl_id: str


class PendingQuestion(msgspec.Struct, frozen=True):
    """A question that waits in a store, and its id."""

    hitl_id: str
    form: Form


class AwaitAnswer(msgspec.Struct, frozen=True):
    """Arguments of `human.answer`."""

    hitl_id: str


class HumanAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `human.answer`."""

    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] = {}
    by: str | None = None


class FieldProblem(msgspec.Struct, frozen=True):
    """What is wrong with one field of an answer."""

    field: str
    code: Literal["required", "type", "option", "too_long", "unknown_field"]


def values(form: Form, answer: HumanAnswer) -> dict[str, FormValue]:
    """Return the value of every field: the form's proposal, overridden by the answer."""
    return {field.name: answer.data.get(field.name, field.value) for field in form.fields}


def check_answer(form: Form, answer: HumanAnswer) -> tuple[FieldProblem, ...]:
    """Return what is wrong with an answer, in the form's order; a rejection is always valid."""
    if answer.action == "reject":
        return ()
    given = values(form, answer)
    codes = [(field.name, _problem(field, given[field.name])) for field in form.fields]
    return (
        *(FieldProblem(name, code) for name, code in codes if code is not None),
        *(FieldProblem(name, "unknown_field") for name in answer.data if name not in given),
    )


def _problem(
    field: FormField, value: FormValue
) -> Literal["required", "type", "option", "too_long"] | None:
    # False and 0 are answers.
    if value is None or value == () or (isinstance(value, str) and not value.strip()):
        return "required" if field.required else None
    match field.type, value:
        case "text", str():
            return "too_long" if len(value) > MAX_FIELD_LENGTH else None
        case "choice", str():
            if len(value) > MAX_FIELD_LENGTH:
                return "too_long"
            return None if value in field.options else "option"
        case "boolean", bool():
            return None
        case "number", int() | float() if not isinstance(value, bool):
            # JSON may bring numbers that cannot be written again.
            whole = isinstance(value, int)
            return None if (abs(value) < _TOO_LARGE if whole else math.isfinite(value)) else "type"
        case "list", tuple() if all(isinstance(item, str) for item in value):
            if sum(len(item) + 1 for item in value) > MAX_FIELD_LENGTH:
                return "too_long"
            return "option" if field.options and set(value) - set(field.options) else None
        case _:
            return "type"
