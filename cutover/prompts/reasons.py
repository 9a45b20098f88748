"""Why a template stays with Jinja2, or is converted with care: file, line, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal[
    "attribute",
    "autoescape",
    "block",
    "call",
    "condition",
    "encoding",
    "expression",
    "extension",
    "filter",
    "finalize",
    "import",
    "include",
    "inheritance",
    "loop",
    "macro",
    "name",
    "size",
    "syntax",
    "test",
    "undefined",
    "unreadable",
    "unproven",
]
CareKind: TypeAlias = Literal[
    "byte order mark", "carriage return", "default", "empty", "global", "import"
]

_COMPUTE = "compute it in Python and pass the text as a variable"
TODO: Mapping[Kind, str] = {
    "attribute": "pass the value itself as a variable: PromptTemplate reaches into nothing",
    "autoescape": "switch autoescape off, or escape the value in Python and pass it",
    "block": "write the block's text where it is used",
    "call": "call it in Python and pass the result as a variable",
    "condition": "choose the text in Python and pass it as a variable, or make one prompt of each",
    "encoding": "pass these letters as a variable, or tell `[prompts]` an encoding that has them",
    "expression": _COMPUTE,
    "extension": "keep the compiled Jinja2 template behind a function",
    "filter": "apply it in Python and pass the result as a variable",
    "finalize": "apply it in Python to each value that is passed",
    "import": "write the macro's text where it is used, or keep the compiled Jinja2 template",
    "include": "name the file in the template itself, or put the text together in Python",
    "inheritance": "name the parent in the template itself, or put the text together in Python",
    "loop": "join the lines in Python and pass them as a variable",
    "macro": "write its text where it is used, or compute it in Python and pass it as a variable",
    "name": "rename the variable: it means something else to one of the two",
    "size": "keep long texts out of the template and pass them as variables",
    "syntax": "mend the template, or tell `[prompts]` the settings of its environment",
    "test": "test it in Python and pass the text that is due as a variable",
    "undefined": "pass the value as a variable, or remove it",
    "unreadable": "mend the file, or tell `[prompts]` its encoding and where templates are",
    "unproven": "keep the compiled Jinja2 template behind a function, and report this case",
}


class Reason(msgspec.Struct, frozen=True, order=True):
    """Why a template stays: what stands where, and what to do about it."""

    file: str
    line: int
    kind: Kind
    said: str
    todo: str


class Care(msgspec.Struct, frozen=True, order=True):
    """What to know of a template that converts."""

    file: str
    line: int
    kind: CareKind
    said: str


class Reach(msgspec.Struct, frozen=True, order=True):
    """A place where a template could run code or reach into objects."""

    file: str
    line: int
    said: str


def reason(file: str, line: int, kind: Kind, said: str) -> Reason:
    """Give a reason with what is to be done about its kind."""
    return Reason(file, line, kind, said, TODO[kind])


class Unresolved(CutoverError):
    """A part of a template is known only when it is rendered."""

    def __init__(self, why: Reason) -> None:
        super().__init__(f"{why.file}:{why.line}: {why.said}")
        self.why = why


def refusal(file: str, line: int, kind: Kind, said: str) -> Unresolved:
    """Give what to raise for a place in a file."""
    return Unresolved(reason(file, line, kind, said))
