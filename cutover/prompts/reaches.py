"""Where templates could run code or reach into objects: named, whether they convert or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

from cutover.prompts.reasons import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWN = frozenset({"loop", "super", "caller", "range"})
_ALWAYS = frozenset({"attr", "selectattr", "rejectattr", "groupby"})


def reaches(template: nodes.Template, file: str) -> list[Reach]:
    """List what of a template reads attributes, makes calls, imports or runs code."""
    macros = (macro.name for macro in template.find_all(nodes.Macro))
    own = _OWN.union(macros, _imported(template))
    found = [
        Reach(file, node.lineno, said)
        for node in template.find_all((nodes.Expr, nodes.Stmt))
        for said in _said(node, own)
    ]
    return sorted(set(found))


def _imported(template: nodes.Template) -> set[str]:
    names = {node.target for node in template.find_all(nodes.Import)}
    for node in template.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in node.names}
    return names


def _said(node: nodes.Node, own: frozenset[str]) -> Iterator[str]:
    match node:
        case nodes.Name(name=name) if name.startswith("__"):
            yield f"reads {name}"
        case nodes.Getattr(node=nodes.Name(name=name), attr=attr) if name in own:
            if attr.startswith("_"):
                yield f"reads {name}.{attr}"
        case nodes.Getattr(attr=attr):
            yield f"reads the attribute {attr!r}"
        case nodes.Getitem(arg=nodes.Const(value=value)):
            yield f"reads the item {value!r}"
        case nodes.Getitem():
            yield "reads an item"
        case nodes.Call(node=called):
            yield from _called(called, own)
        case nodes.Filter(name=name) if name in _ALWAYS or _names_one(node):
            yield f"reads attributes by the filter {name!r}"
        case nodes.Import() | nodes.FromImport():
            yield "imports another template"
        case nodes.ExprStmt():
            yield "runs an expression ({% do %})"
        case nodes.ImportedName(importname=name):
            yield f"imports the Python name {name!r}"
        case nodes.ExtensionAttribute() | nodes.EnvironmentAttribute() | nodes.ContextReference():
            yield "reaches the environment"
        case _:
            return


def _names_one(node: nodes.Filter) -> bool:
    """Whether a filter is told an attribute to read."""
    return any(pair.key == "attribute" for pair in node.kwargs)


def _called(called: nodes.Expr, own: frozenset[str]) -> Iterator[str]:
    match called:
        case nodes.Name(name=name):
            if name not in own:
                yield f"calls {name}()"
        case nodes.Getattr(node=nodes.Name(name=name)) if name in own:
            return
        case nodes.Getattr(attr=attr):
            yield f"calls the method {attr}()"
        case _:
            yield "calls what an expression gives"
