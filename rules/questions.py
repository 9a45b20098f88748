"""Questions to the user: the tool `ask_human`, its form, and the calls of a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contract.human import Form, FormField, HumanAnswer, check_answer, values
from contract.model import ToolCall, ToolResult, ToolSpec

NAME: Final = "ask_human"

_Label = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*\Z")]
_Labels = Annotated[tuple[_Label, ...], Meta(max_length=100)]
_Name = Annotated[str, Meta(max_length=64, pattern=r"^\w+\Z")]
_Text = Annotated[str, Meta(max_length=4_000, pattern=r"^[^\x00]*\Z")]


NOT_ASKED: Final = ToolResult(error="tool_failed")
"""Result of a question that cannot be asked: another one is open, or no human can answer."""


class _Field(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    name: _Name
    label: _Label
    type: Literal["text", "number", "boolean", "choice", "list"] = "text"
    required: bool = False
    value: _Text | int | float | bool | _Labels | None = None
    options: _Labels = ()


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: _Label
    fields: Annotated[tuple[_Field, ...], Meta(min_length=1, max_length=20)]


def _schema() -> msgspec.Raw:
    text = {"type": "string"}
    of_a_field = {
        "name": text,
        "label": text,
        "type": {"type": "string", "enum": ["text", "number", "boolean", "choice", "list"]},
        "required": {"type": "boolean"},
        "value": {"description": "proposed; of the field's type"},
        "options": {"type": "array", "items": text, "description": "of a choice or a list"},
    }
    a_field = {"type": "object", "properties": of_a_field, "required": ["name", "label", "type"]}
    form = {"title": text, "fields": {"type": "array", "items": a_field, "minItems": 1}}
    whole = {"type": "object", "properties": form, "required": ["title", "fields"]}
    return msgspec.Raw(msgspec.json.encode(whole))


SPEC: Final = ToolSpec(
    NAME,
    "Ask the user to fill in a form when something only they can tell or decide is missing. "
    "One question at a time; the answer comes back as JSON.",
    _schema(),
)

_decoder = msgspec.json.Decoder(_Form)


@dataclass(frozen=True, slots=True)
class FormCall:
    """A call that asks the user, and its form."""

    call: ToolCall
    form: Form


@dataclass(frozen=True, slots=True)
class Round:
    """The calls of a round: those to run, the one that asks, those answered by an error."""

    calls: tuple[ToolCall, ...]
    runs: tuple[ToolCall, ...]
    question: FormCall | None = None
    refused: Mapping[str, ToolResult] = field(default_factory=dict)

    @property
    def before(self) -> tuple[ToolCall, ...]:
        """Calls that end before the user is asked, in index order."""
        asking = self.question.call if self.question else None
        return tuple(call for call in self.calls if call is not asking)


def offer(tools: Iterable[ToolSpec], *, asking: bool) -> tuple[ToolSpec, ...]:
    """Return the tools to offer to a model; `ask_human` goes last, and is always ours."""
    if not asking:
        return tuple(tools)
    return (*(tool for tool in tools if tool.name != NAME), SPEC)


def sort_calls(calls: tuple[ToolCall, ...], *, asking: bool) -> Round:
    """Sort a round's calls: the first valid form is the question, a second one is an error."""
    refused: dict[str, ToolResult] = {}
    question: FormCall | None = None
    runs: list[ToolCall] = []
    for call in calls:
        if not asking or call.name != NAME:
            runs.append(call)
        elif (form := read_form(call.arguments)) is None:
            refused[call.id] = ToolResult(error="bad_arguments")
        elif question is None:
            question = FormCall(call, form)
        else:
            refused[call.id] = NOT_ASKED
    return Round(calls, tuple(runs), question, refused)


def read_form(arguments: str) -> Form | None:
    """Read the form in a call's arguments; None where it cannot be answered."""
    try:
        found = _decoder.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    form = Form(found.title, tuple(map(_field, found.fields)))
    names = {one.name for one in form.fields}
    whole = len(names) == len(form.fields) and all(map(_can_be_chosen, form.fields))
    wrong = [it for it in check_answer(form, HumanAnswer("approve")) if it.code != "required"]
    return form if whole and not wrong else None


def answer_result(form: Form, answer: HumanAnswer) -> ToolResult:
    """Build the tool result of an answer: the action, and the form's values."""
    result: dict[str, object] = {"action": answer.action}
    if answer.action != "reject":
        result["data"] = values(form, answer)
    return ToolResult(msgspec.json.encode(result).decode())


def _field(it: _Field) -> FormField:
    return FormField(it.name, it.label, it.type, it.required, it.value, it.options)


def _can_be_chosen(one: FormField) -> bool:
    if one.type == "choice" and not one.options:
        return False
    return len(set(one.options)) == len(one.options)
