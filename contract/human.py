"""Questions to a human: forms, answers, and the two operations that carry them."""

from __future__ import annotations

from typing import Literal

import msgspec

FormValue = str | int | float | bool | tuple[str, ...] | None


class Field(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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
    fields: tuple[Field, ...]


class OpenQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Arguments of `human.open`; `kind` is the flow's own word for the question."""

    form: Form
    kind: str = ""
    session_id: str | None = None


class Question(msgspec.Struct, frozen=True):
    """Result of `human.open`: the id by which the answer comes."""

    hitl_id: str


class AwaitAnswer(msgspec.Struct, frozen=True):
    """Arguments of `human.answer`."""

    hitl_id: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of `human.answer`."""

    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] = {}
    by: str | None = None
