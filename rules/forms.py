"""Forms put to a human, their answers, and what makes an answer valid."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rules.prompts import ToolFault

ASK_HUMAN: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "ask_human.json").read_text("utf-8")
)
"""Name, description and parameters of the tool by which a model puts a form to the user."""

_TOO_LARGE: Final = 1 << 63
_Label = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*\Z")]
_Labels = Annotated[list[_Label], Meta(max_length=100)]
_Value = Annotated[str, Meta(max_length=65_536, pattern=r"^[^\x00]*\Z")]
FormValue = _Value | int | float | bool | _Labels | None
"""What one field holds."""


class FormField(msgspec.Struct, frozen=True):
    """One field of a form; `value` is what is proposed, `options` are those of choice and list."""

    name: Annotated[str, Meta(max_length=64, pattern=r"^\w+\Z")]
    label: _Label
    type: Literal["text", "number", "boolean", "choice", "list"] = "text"
    required: bool = False
    value: FormValue | UnsetType = UNSET
    options: _Labels | UnsetType = UNSET


class Form(msgspec.Struct, frozen=True):
    """A question put to a human."""

    title: _Label
    fields: Annotated[tuple[FormField, ...], Meta(min_length=1, max_length=20)]


class HumanAnswer(msgspec.Struct, frozen=True):
    """What a human decided; `by` is who, where the flow names them."""

    action: Literal["approve", "edit", "reject"]
    data: dict[str, FormValue] = {}
    by: str = ""


def form_values(form: Form, answer: HumanAnswer) -> dict[str, FormValue]:
    """Return the value of every field: what is proposed, overridden by the answer."""
    proposed = {one.name: None if one.value is UNSET else one.value for one in form.fields}
    return {name: answer.data.get(name, value) for name, value in proposed.items()}


def answer_problems(form: Form, answer: HumanAnswer) -> dict[str, str]:
    """Return what is wrong with an answer, a code by field; a rejection is always valid.

    The codes are `required`, `type`, `option` and `unknown_field`.
    """
    if answer.action == "reject":
        return {}
    given = form_values(form, answer)
    wrong = {one.name: _problem(one, given[one.name]) for one in form.fields}
    unknown = dict.fromkeys(answer.data.keys() - given.keys(), "unknown_field")
    return {name: code for name, code in wrong.items() if code} | unknown


def _problem(one: FormField, value: FormValue) -> str:
    # False and 0 are answers.
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        return "required" if one.required else ""
    options = one.options or []
    match one.type, value:
        case ("text", str()) | ("boolean", bool()):
            return ""
        case "choice", str():
            return "" if value in options else "option"
        case "number", int() | float() if not isinstance(value, bool):
            # JSON may bring numbers that cannot be written again.
            return "" if math.isfinite(value) and abs(value) < _TOO_LARGE else "type"
        case "list", list():
            return "option" if options and set(value) - set(options) else ""
        case _:
            return "type"


def form_of(arguments: str) -> Form | None:
    """Return the form in the arguments of an `ask_human` call; None where none can be answered."""
    try:
        form = msgspec.json.decode(arguments, type=Form)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    problems = set(answer_problems(form, HumanAnswer("approve")).values())
    unique = len({one.name for one in form.fields}) == len(form.fields)
    answerable = all(one.options or one.type != "choice" for one in form.fields)
    return form if unique and answerable and problems <= {"required"} else None


class DividedCalls(msgspec.Struct, frozen=True):
    """How the calls of one round are divided, by their index.

    The first call of `ask_human` with a valid form is the `question` and is answered last; others
    of that name get an error; `runs` are the tools to run.
    """

    runs: tuple[int, ...]
    errors: Mapping[int, ToolFault] = {}
    question: int | None = None
    form: Form | None = None


def divide_calls(calls: Sequence[tuple[str, str]]) -> DividedCalls:
    """Divide a round's calls, pairs of a name and the JSON text of its arguments."""
    forms = {n: form_of(text) for n, (name, text) in enumerate(calls) if name == ASK_HUMAN["name"]}
    question = next((index for index, form in forms.items() if form is not None), None)
    errors: dict[int, ToolFault] = {
        index: "bad_arguments" if form is None else "tool_failed"
        for index, form in forms.items()
        if index != question
    }
    runs = tuple(index for index in range(len(calls)) if index not in forms)
    return DividedCalls(runs, errors, question, None if question is None else forms[question])


def answer_text(form: Form, answer: HumanAnswer) -> str:
    """Return what the model reads of an answer: JSON with the action and the form's values."""
    result: dict[str, Any] = {"action": answer.action}
    if answer.action != "reject":
        result["data"] = form_values(form, answer)
    return msgspec.json.encode(result).decode()
