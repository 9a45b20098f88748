"""Answers held against the form they answer."""

from __future__ import annotations

import math
from typing import Final, Literal, assert_never

import msgspec

from contract.human import Answer, Field, Form, FormValue

_TOO_LARGE: Final = 1 << 63
"""A whole number that does not fit into 64 bits: no encoder takes it."""
LONGEST: Final = 65_536
"""Characters a field may be answered with: as many as a message may have."""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one field of an answer."""

    field: str
    code: Literal["required", "type", "option", "too_long", "unknown_field"]


def values(form: Form, answer: Answer) -> dict[str, FormValue]:
    """Give every field its value: what the form proposed, overridden by what was answered."""
    return {field.name: answer.data.get(field.name, field.value) for field in form.fields}


def check_answer(form: Form, answer: Answer) -> tuple[Problem, ...]:
    """Tell what is wrong with an answer, in the form's order; nothing can be with a rejection."""
    if answer.action == "reject":
        return ()
    given = values(form, answer)
    known = [problem for field in form.fields if (problem := _check(field, given[field.name]))]
    return (*known, *(Problem(name, "unknown_field") for name in answer.data if name not in given))


def _check(field: Field, value: FormValue) -> Problem | None:
    if _is_empty(value):
        return Problem(field.name, "required") if field.required else None
    if not _has_type(field, value):
        return Problem(field.name, "type")
    if _length(value) > LONGEST:
        return Problem(field.name, "too_long")
    return None if _is_offered(field, value) else Problem(field.name, "option")


def _is_empty(value: FormValue) -> bool:
    """Whether a value says nothing; False and 0 do say something."""
    return value is None or value == () or (isinstance(value, str) and not value.strip())


def _length(value: FormValue) -> int:
    """Count the characters of a text, or of all in a list with a comma each."""
    if isinstance(value, tuple):
        return sum(len(item) + 1 for item in value)
    return len(value) if isinstance(value, str) else 0


def _has_type(field: Field, value: FormValue) -> bool:
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


def _is_offered(field: Field, value: FormValue) -> bool:
    """Whether a choice, or every item of a list that has options, is one of the options."""
    match field.type:
        case "choice":
            return value in field.options
        case "list" if field.options and isinstance(value, tuple):
            return set(value) <= set(field.options)
        case _:
            return True
