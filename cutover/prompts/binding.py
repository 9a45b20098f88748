"""Names bound to values: assignments, loop targets, arguments of macros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

from cutover.prompts.reasons import refusal
from cutover.prompts.values import Known, Missing

if TYPE_CHECKING:
    from cutover.prompts.expressions import CallValues, Expressions
    from cutover.prompts.values import Frame, Routine, Value

_APART = "it cannot be taken apart"


def bind(target: nodes.Node, item: object, frame: Frame) -> None:
    """Bind a target to a constant, or several to its items; raises `Unresolved`."""
    match target:
        case nodes.Name(name=name):
            frame.scope.names[name] = Known(item)
        case nodes.Tuple(items=targets) if isinstance(item, list | tuple | str) and len(
            item
        ) == len(targets):
            for below, part in zip(targets, item, strict=True):
                bind(below, part, frame)
        case _:
            raise refusal(frame.file, target.lineno, "expression", _APART)


def name_as(target: nodes.Node, value: Value, frame: Frame) -> None:
    """Bind a name to a value; raises `Unresolved` for a target that is no name."""
    if not isinstance(target, nodes.Name):
        raise refusal(frame.file, target.lineno, "expression", _APART)
    frame.scope.names[target.name] = value


def assign(target: nodes.Node, node: nodes.Node, frame: Frame, values: Expressions) -> None:
    """Do what `{% set %}` does; raises `Unresolved`."""
    if isinstance(target, nodes.Name):
        frame.scope.names[target.name] = values.value(node, frame)
    elif isinstance(target, nodes.Tuple) and isinstance(node, nodes.Tuple):
        if len(target.items) != len(node.items):
            raise refusal(frame.file, target.lineno, "expression", _APART)
        found = [values.value(item, frame) for item in node.items]
        for name, value in zip(target.items, found, strict=True):
            name_as(name, value, frame)
    else:
        bind(target, values.constant(node, frame, "expression", "an assignment"), frame)


def bind_arguments(routine: Routine, called: CallValues, inner: Frame, values: Expressions) -> None:
    """Bind the arguments of a macro, and the defaults of those not given; raises `Unresolved`."""
    node = routine.node
    positional, named = called
    names = [arg.name for arg in node.args]
    special = any(n.name in {"caller", "varargs", "kwargs"} for n in node.find_all(nodes.Name))
    if special or set(named) - set(names) or len(positional) > len(names):
        said = f"the macro {node.name!r} takes more than its names say"
        raise refusal(inner.file, node.lineno, "macro", said)
    bound = dict(zip(names, positional, strict=False)) | named
    first = len(names) - len(node.defaults)
    for index, name in enumerate(names):
        if name in bound:
            inner.scope.names[name] = bound[name]
        elif index >= first:
            inner.scope.names[name] = values.value(node.defaults[index - first], inner)
        else:
            inner.scope.names[name] = Missing(name)
