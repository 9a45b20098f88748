"""Filters of templates: those that leave a value as it is, and those that fold to constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jinja2 import nodes
from markupsafe import Markup

from cutover.prompts.bounds import TEXT_AT_MOST, WORK_AT_MOST, TooLarge
from cutover.prompts.computing import failure
from cutover.prompts.reasons import Care, Unresolved, refusal
from cutover.prompts.sandbox import folded
from cutover.prompts.values import Frame, Given, Known, Missing, Text, Unsure, Value

if TYPE_CHECKING:
    from cutover.prompts.environment import Prompting

Told = tuple[list[object], dict[str, object]]

FOLDED = frozenset(
    {
        "abs",
        "capitalize",
        "center",
        "count",
        "d",
        "default",
        "e",
        "escape",
        "first",
        "float",
        "indent",
        "int",
        "join",
        "last",
        "length",
        "lower",
        "replace",
        "reverse",
        "round",
        "safe",
        "string",
        "striptags",
        "title",
        "tojson",
        "trim",
        "truncate",
        "upper",
        "wordcount",
    }
)
"""Filters of Jinja2 that give the same for the same constant, whatever else there is."""


class Filtering:
    """Applies filters to values; what it cannot raises `Unresolved`."""

    def __init__(self, made: Prompting) -> None:
        self._made = made
        self._worked = 0

    def apply(
        self, value: Value, node: nodes.Filter, told: Told, frame: Frame, cares: set[Care]
    ) -> Value:
        """Give what a filter makes of a value."""
        if isinstance(value, Unsure):
            raise Unresolved(value.why)
        if node.name not in self._made.filters:
            raise refusal(
                frame.file, node.lineno, "filter", f"filter {node.name!r} is not Jinja2's own"
            )
        if isinstance(value, Given):
            return self._given(value, node, told, (frame, cares))
        constant = _constant(value, frame)
        if constant is None:
            if isinstance(value, Text) and node.name in {"safe", "string"}:
                return Text(value.pieces, safe=value.safe or node.name == "safe")
            said = f"filter {node.name!r} works on text with variables in it"
            raise refusal(frame.file, node.lineno, "filter", said)
        if isinstance(value, Missing) and node.name in {"default", "d"}:
            return Known(told[0][0] if told[0] else told[1].get("default_value", ""))
        if isinstance(value, Missing) and not self._made.silent:
            raise refusal(frame.file, node.lineno, "undefined", f"{value.name!r} is not given")
        return self._known(constant, node, told, frame)

    def _given(
        self, value: Given, node: nodes.Filter, told: Told, where: tuple[Frame, set[Care]]
    ) -> Given:
        """Let a filter pass that leaves given values as they are written."""
        frame, cares = where
        args, options = told
        match node.name:
            case "safe":
                return Given(value.name, safe=True)
            case "string":
                return value
            case "default" | "d" if len(args) < 2 and not options.keys() - {"default_value"}:  # noqa: PLR2004 (the second says that empty values count, too)
                text = args[0] if args else options.get("default_value", "")
                said = f"pass {text!r} for {value.name!r} where nothing is: nobody else will"
                cares.add(Care(frame.file, node.lineno, "default", said))
                return value
            case _:
                said = f"filter {node.name!r} works on the variable {value.name!r}"
                raise refusal(frame.file, node.lineno, "filter", said)

    def _known(self, constant: Known, node: nodes.Filter, told: Told, frame: Frame) -> Known:
        if node.name not in FOLDED:
            raise refusal(
                frame.file, node.lineno, "filter", f"filter {node.name!r} is not followed here"
            )
        args, options = told
        self._worked += len(constant.value) if isinstance(constant.value, str) else 0
        if self._worked > WORK_AT_MOST:
            raise refusal(frame.file, node.lineno, "size", "filters work on too much in all")
        ctx = nodes.EvalContext(self._made.environment)
        ctx.autoescape = frame.escaped
        function = self._made.filters[node.name]
        try:
            made = folded(node.name, function, ctx, (constant.value, *args), options)
        except TooLarge as error:
            raise refusal(frame.file, node.lineno, "size", str(error)) from error
        except Exception as error:  # whatever the template's own mistake raises
            raise refusal(frame.file, node.lineno, "filter", failure(error)) from error
        if isinstance(made, str) and len(made) > TEXT_AT_MOST:
            raise refusal(frame.file, node.lineno, "size", f"filter {node.name!r} makes too much")
        return Known(list(made) if isinstance(made, Iterator) else made)


def _constant(value: Value, frame: Frame) -> Known | None:
    match value:
        case Known():
            return value
        case Missing():
            return Known("")
        case Text(safe=safe) if (text := value.constant) is not None:
            return Known(Markup(text) if safe and frame.escaped else text)  # noqa: S704 (it was escaped)
        case _:
            return None
