"""Expressions of templates: what they are worth before anything is given, as Jinja2 counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jinja2 import nodes
from markupsafe import Markup

from cutover.prompts.bounds import TEXT_AT_MOST, TURNS_AT_MOST, TooLarge
from cutover.prompts.computing import NotComputed, computation, failure
from cutover.prompts.filtering import Filtering
from cutover.prompts.lines import constant, literals, size_of, variable
from cutover.prompts.reasons import Care, Kind, Unresolved, refusal
from cutover.prompts.values import (
    Frame,
    Given,
    Known,
    Missing,
    Module,
    Routine,
    Text,
    Turn,
    Unsure,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting

RESERVED = frozenset({"self", "stop"})
"""Names of variables that PromptTemplate, or Jinja2, keeps for itself."""


class Calling(Protocol):
    """Who runs the bodies of macros and of overridden blocks."""

    def macro(self, routine: Routine, call: nodes.Call, values: CallValues) -> Text:
        """Run a macro; raises `Unresolved`."""

    def parent(self, call: nodes.Call, frame: Frame) -> Text:
        """Run the block this one overrides; raises `Unresolved`."""


CallValues = tuple[list["Value"], dict[str, "Value"]]


class Expressions:
    """Evaluates expressions; what it cannot raises `Unresolved`."""

    def __init__(self, made: Prompting, calling: Calling) -> None:
        self._made = made
        self._calling = calling
        self._filtering = Filtering(made)
        self.cares: set[Care] = set()

    def value(self, node: nodes.Node, frame: Frame) -> Value:
        """Give what an expression is worth."""
        match node:
            case nodes.Const(value=value):
                return Known(value)
            case nodes.TemplateData(data=data):
                return Text(literals(data, frame.file, node.lineno), safe=True)
            case nodes.Name():
                return self._name(node, frame)
            case nodes.MarkSafeIfAutoescape(expr=below):
                return self.value(below, frame)
            case nodes.Concat():
                return self._joined(node, frame)
            case nodes.CondExpr():
                return self._chosen(node, frame)
            case nodes.Filter():
                return self._filtered(node, frame)
            case nodes.Test():
                return self._tested(node, frame)
            case nodes.Call():
                return self._called(node, frame)
            case nodes.Getattr() | nodes.Getitem():
                return self._reached(node, frame)
            case _:
                return Known(self._plain(node, frame))

    def constant(self, node: nodes.Node, frame: Frame, kind: Kind, said: str) -> object:
        """Give the constant an expression is; else what is due is said for `kind`."""
        value = self.value(node, frame)
        match value:
            case Known(value=known):
                return known
            case Text(safe=safe) if (text := value.constant) is not None:
                return Markup(text) if safe and frame.escaped else text  # noqa: S704 (it was escaped)
            case Unsure(why=why):
                raise Unresolved(why)
            case _:
                raise refusal(frame.file, node.lineno, kind, f"{said} depends on {_depends(node)}")

    def _plain(self, node: nodes.Node, frame: Frame) -> object:
        place = frame.file, node.lineno
        try:
            return computation(node, lambda part: self._part(part, frame))
        except Unresolved:
            raise
        except NotComputed as error:
            raise refusal(*place, "expression", str(error)) from error
        except TooLarge as error:
            raise refusal(*place, "size", str(error)) from error
        except Exception as error:  # whatever the template's own mistake raises
            raise refusal(*place, "expression", failure(error)) from error

    def _part(self, node: nodes.Node, frame: Frame) -> object:
        return self.constant(node, frame, "expression", "an expression")

    def _name(self, node: nodes.Name, frame: Frame) -> Value:
        found = frame.scope.find(node.name)
        if isinstance(found, Unsure):
            raise Unresolved(found.why)
        if found is not None:
            return found
        if node.name in RESERVED or node.name.startswith("__"):
            said = f"{node.name!r} cannot be a variable of a PromptTemplate"
            raise refusal(frame.file, node.lineno, "name", said)
        if node.name in self._made.own_globals:
            said = f"the global {node.name!r} becomes a variable: pass it with the others"
            self.cares.add(Care(frame.file, node.lineno, "global", said))
        elif node.name in self._made.environment.globals:
            raise refusal(frame.file, node.lineno, "name", f"{node.name!r} is a function of Jinja2")
        return Given(node.name)

    def _joined(self, node: nodes.Concat, frame: Frame) -> Text:
        if frame.escaped:
            known = [self.constant(n, frame, "autoescape", "escaped text") for n in node.nodes]
            if any(hasattr(item, "__html__") for item in known):
                raise refusal(
                    frame.file, node.lineno, "autoescape", "escaped and plain text are joined"
                )
            return Text(constant("".join(map(str, known)), frame.file, node.lineno))
        pieces: list[Piece] = []
        for below in node.nodes:
            pieces += self.pieces(self.value(below, frame), below, frame)
        if size_of(pieces) > TEXT_AT_MOST:
            raise refusal(frame.file, node.lineno, "size", "a text is put together from too much")
        return Text(tuple(pieces))

    def pieces(self, value: Value, node: nodes.Node, frame: Frame) -> Sequence[Piece]:
        """Give the text of a value, unescaped."""
        match value:
            case Known(value=known):
                return constant(str(known), frame.file, node.lineno)
            case Given(name=name):
                return (variable(name, frame.file, node.lineno),)
            case Text(pieces=pieces):
                return pieces
            case Missing(name=name):
                if self._made.silent:
                    return ()
                raise refusal(frame.file, node.lineno, "undefined", f"{name!r} is not given")
            case Unsure(why=why):
                raise Unresolved(why)
            case Turn() | Routine() | Module():
                raise refusal(frame.file, node.lineno, "expression", "an object is written as text")

    def _chosen(self, node: nodes.CondExpr, frame: Frame) -> Value:
        if self.constant(node.test, frame, "condition", "a choice"):
            return self.value(node.expr1, frame)
        if node.expr2 is None:
            return Known("")  # whatever undefined names do, this one is silent
        return self.value(node.expr2, frame)

    def _filtered(self, node: nodes.Filter, frame: Frame) -> Value:
        if node.node is None:
            raise refusal(frame.file, node.lineno, "filter", "a filter stands alone")
        value = self.value(node.node, frame)
        options = self._options(node, frame) if not isinstance(value, Unsure) else {}
        args = [self.constant(arg, frame, "filter", _filter_said(node)) for arg in node.args]
        return self.filtered(value, node, (args, options), frame)

    def filtered(
        self,
        value: Value,
        node: nodes.Filter,
        told: tuple[list[object], dict[str, object]],
        frame: Frame,
    ) -> Value:
        """Apply a filter to a value."""
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise refusal(
                frame.file, node.lineno, "filter", f"{_filter_said(node)} takes what is computed"
            )
        return self._filtering.apply(value, node, told, frame, self.cares)

    def _options(
        self, node: nodes.Filter | nodes.Test | nodes.Call, frame: Frame
    ) -> dict[str, object]:
        said = "an argument"
        return {str(p.key): self.constant(p.value, frame, "expression", said) for p in node.kwargs}

    def _tested(self, node: nodes.Test, frame: Frame) -> Value:
        value = self.value(node.node, frame)
        if node.name in {"defined", "undefined"} and node.name in self._made.tests:
            if isinstance(value, Given):
                said = f"it depends on whether {value.name!r} is given"
                raise refusal(frame.file, node.lineno, "test", said)
            return Known(isinstance(value, Missing) != (node.name == "defined"))
        test = self._made.tests.get(node.name)
        if test is None or node.name in {"filter", "test"}:
            raise refusal(
                frame.file, node.lineno, "test", f"test {node.name!r} is not Jinja2's own"
            )
        known = self.constant(node.node, frame, "test", f"test {node.name!r}")
        args = [self.constant(arg, frame, "test", f"test {node.name!r}") for arg in node.args]
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise refusal(
                frame.file, node.lineno, "test", f"test {node.name!r} takes what is computed"
            )
        try:
            return Known(test(known, *args, **self._options(node, frame)))
        except Exception as error:  # whatever the template's own mistake raises
            raise refusal(frame.file, node.lineno, "test", failure(error)) from error

    def _called(self, node: nodes.Call, frame: Frame) -> Value:
        match node.node:
            case nodes.Name(name="super") if frame.block is not None:
                return self._calling.parent(node, frame)
            case nodes.Name(name="range") if frame.scope.find("range") is None:
                return self._range(node, frame)
            case nodes.Name(name=name) if frame.scope.find(name) is None:
                raise refusal(frame.file, node.lineno, "call", f"{name}() is called")
            case nodes.Name() | nodes.Getattr(node=nodes.Name()):
                called = self._callable(node.node, frame)
                if isinstance(called, Routine):
                    return self._calling.macro(called, node, self._arguments(node, frame))
            case _:
                pass
        raise refusal(frame.file, node.lineno, "call", f"{_written(node.node)}() is called")

    def _callable(self, node: nodes.Name | nodes.Getattr, frame: Frame) -> Value | None:
        if isinstance(node, nodes.Name):
            return frame.scope.find(node.name)
        owner = frame.scope.find(node.node.name) if isinstance(node.node, nodes.Name) else None
        return owner.names.names.get(node.attr) if isinstance(owner, Module) else None

    def _arguments(self, node: nodes.Call, frame: Frame) -> CallValues:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise refusal(frame.file, node.lineno, "macro", "a macro takes what is computed")
        return (
            [self.value(arg, frame) for arg in node.args],
            {str(pair.key): self.value(pair.value, frame) for pair in node.kwargs},
        )

    def _range(self, node: nodes.Call, frame: Frame) -> Known:
        place = frame.file, node.lineno
        args = [self.constant(arg, frame, "loop", "a range") for arg in node.args]
        bounds = [arg for arg in args if isinstance(arg, int)]
        if node.kwargs or not bounds or len(bounds) != len(args):
            raise refusal(*place, "loop", "a range is computed")
        try:
            made = range(*bounds)
            if made[TURNS_AT_MOST:]:
                raise refusal(*place, "size", f"a range has more than {TURNS_AT_MOST:,} turns")
        except (ValueError, TypeError) as error:
            raise refusal(*place, "loop", failure(error)) from error
        return Known(list(made))

    def _reached(self, node: nodes.Getattr | nodes.Getitem, frame: Frame) -> Value:
        owner = self.value(node.node, frame)
        name = node.attr if isinstance(node, nodes.Getattr) else None
        if isinstance(owner, Turn) and name is not None:
            found = owner.attribute(name)
            if found is not None:
                return found
            raise refusal(frame.file, node.lineno, "loop", f"'loop.{name}' is read")
        if isinstance(owner, Module) and name is not None and name in owner.names.names:
            return owner.names.names[name]
        if isinstance(owner, Known) and isinstance(node, nodes.Getitem):
            return self._item(owner.value, node, frame)
        said = f"the attribute {name!r} of" if name is not None else "an item of"
        raise refusal(frame.file, node.lineno, "attribute", f"{said} {_written(node.node)} is read")

    def _item(self, owner: object, node: nodes.Getitem, frame: Frame) -> Known:
        key = self._part(node.arg, frame)
        match owner:
            case dict() if isinstance(key, str | int) and key in owner:
                return Known(owner[key])
            case list() | tuple() | str() if isinstance(key, int) and -len(owner) <= key < len(
                owner
            ):
                return Known(owner[key])
            case _:
                raise refusal(
                    frame.file,
                    node.lineno,
                    "attribute",
                    f"an item of {_written(node.node)} is read",
                )


def _filter_said(node: nodes.Filter) -> str:
    return f"filter {node.name!r}"


def _written(node: nodes.Node) -> str:
    """Write an expression for people, as far as it is one of names."""
    match node:
        case nodes.Name(name=name):
            return str(name)
        case nodes.Getattr(node=below, attr=attr):
            return f"{_written(below)}.{attr}"
        case nodes.Getitem(node=below):
            return f"{_written(below)}[…]"
        case nodes.Call(node=below):
            return f"{_written(below)}(…)"
        case nodes.Filter(node=below, name=name) if below is not None:
            return f"{_written(below)}|{name}"
        case nodes.Const(value=value):
            return repr(value)
        case _:
            return "an expression"


def _depends(node: nodes.Node) -> str:
    """Name the variables an expression depends on."""
    names = [below.name for below in node.find_all(nodes.Name)]
    if isinstance(node, nodes.Name):
        names = [node.name]
    return ", ".join(map(repr, dict.fromkeys(names))) or "what is computed"
