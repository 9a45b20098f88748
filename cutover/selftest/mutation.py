"""Mutation: small changes of a module's code, made on its syntax tree."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MUCH_SHORTER = 60


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one module; `number` counts the changes the module offers.

    `change` says what was changed into what, and of equal changes of a function, which.
    """

    module: str
    line: int
    number: int
    function: str
    change: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.module}.py:{self.line}"


def mutants_of(module: str, source: str) -> list[Mutant]:
    """List the changes a module offers, in the order of its lines."""
    twins: Counter[tuple[str, str]] = Counter()
    found: list[Mutant] = []
    for number, edit in enumerate(_edits(ast.parse(source))):
        twins[edit.function, edit.said] += 1
        nth = twins[edit.function, edit.said]
        change = edit.said if nth == 1 else f"{edit.said} [{nth}]"
        found.append(Mutant(module, edit.node.lineno, number, edit.function, change))
    return sorted(found)


def mutated(source: str, number: int) -> ast.Module:
    """Make one change; gives the tree of the whole module."""
    tree = ast.parse(source)
    edit = next(edit for k, edit in enumerate(_edits(tree)) if k == number)
    _Replacing(edit.node, edit.by).visit(tree)
    return ast.fix_missing_locations(tree)


@dataclass(frozen=True)
class _Edit:
    """A node, and what stands in its place."""

    function: str
    node: ast.stmt | ast.expr
    by: ast.stmt | ast.expr

    @property
    def said(self) -> str:
        """The change as code."""
        return f"{_said(self.node)} → {_said(self.by)}{self._without}"

    @property
    def _without(self) -> str:
        """Name the entry or argument that was left out, for it may not show in a line."""
        match self.node, self.by:
            case ast.Dict(), ast.Dict():
                gone = set(_entries(self.node)) - set(_entries(self.by))
                return f" (without {', '.join(gone)})"
            case ast.Call(), ast.Call():
                names = {keyword.arg for keyword in self.node.keywords}
                (name,) = names - {keyword.arg for keyword in self.by.keywords}
                return f" (without {name})"
            case _:
                return ""


def _entries(node: ast.Dict) -> list[str]:
    """Name the entries of a dictionary by their keys, those of another one by its name."""
    entries = zip(node.keys, node.values, strict=True)
    return [f"**{_said(value)}" if key is None else _said(key) for key, value in entries]


def _said(node: ast.AST) -> str:
    """Write a node in one line; of a compound statement, its first."""
    text = " ".join(ast.unparse(node).split("\n", 1)[0].split())
    return text if len(text) <= MUCH_SHORTER else f"{text[:MUCH_SHORTER]}…"


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, node: ast.AST, by: ast.AST) -> None:
        self._node = node
        self._by = by

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the node, look into all others."""
        if node is self._node:
            return ast.copy_location(self._by, node)
        visited: ast.AST = super().visit(node)
        return visited


def _edits(tree: ast.Module) -> Iterator[_Edit]:
    """Walk the code, leaving out what does nothing: docstrings, annotations, imports."""
    for node, function in _walk(tree, "<module>"):
        if isinstance(node, ast.stmt):
            edits: Iterator[ast.stmt | ast.expr] = _statement(node, function)
        elif isinstance(node, ast.expr):
            edits = _expression(node)
        else:
            continue
        for by in edits:
            yield _Edit(function, node, by)


def _walk(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _does_nothing(child):
                continue
            yield child, function
            yield from _walk(child, _within(child, function))


def _within(node: ast.AST, function: str) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return function
    return node.name if function == "<module>" else f"{function}.{node.name}"


def _does_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return _about_types(node)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)


def _about_types(node: ast.Assign) -> bool:
    """Whether a name is given to a type, or to what a package offers."""
    named = [target.id for target in node.targets if isinstance(target, ast.Name)]
    types = isinstance(node.value, ast.Subscript) and not isinstance(node.value.slice, ast.Slice)
    declared = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
    return any(name.startswith("__") for name in named) or types or declared


_SIMPLE = ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Raise | ast.Break


def _statement(node: ast.stmt, function: str) -> Iterator[ast.stmt]:
    """Leave a statement out."""
    if isinstance(node, _SIMPLE) and not _of_class(function):
        yield ast.Pass()
    if isinstance(node, ast.If) and _turns_only_here(node.test):
        yield ast.If(_not(node.test), node.body, node.orelse)
    if isinstance(node, ast.While) and _turns_only_here(node.test):
        yield ast.While(_not(node.test), node.body, node.orelse)


def _of_class(function: str) -> bool:
    """Whether statements there declare: a module's and a class's own."""
    name = function.rsplit(".", 1)[-1].lstrip("_")
    return function == "<module>" or name[:1].isupper()


def _turns_only_here(test: ast.expr) -> bool:
    """Whether no other change inverts the condition: operators and `not` have their own."""
    if isinstance(test, ast.Compare):
        return False
    return not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant():
            yield from _constant(node)
        case ast.Compare():
            yield from _comparison(node)
        case ast.BoolOp():
            other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            yield ast.BoolOp(other, node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp():
            yield from _arithmetic(node)
        case ast.IfExp() if _turns_only_here(node.test):
            yield ast.IfExp(_not(node.test), node.body, node.orelse)
        case ast.Dict():
            yield from _dictionary(node)
        case ast.Call():
            yield from _call(node)
        case ast.Subscript(slice=ast.Slice()):
            yield node.value
        case _:
            return


def _constant(node: ast.Constant) -> Iterator[ast.expr]:
    match node.value:
        case bool(value):
            yield ast.Constant(not value)
        case int(value) | float(value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case str(value):
            yield ast.Constant(f"{value}!")
        case _:
            return


_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def _comparison(node: ast.Compare) -> Iterator[ast.expr]:
    """Swap the operator for its neighbour or opposite; an order is turned around, too."""
    operator = type(node.ops[0])
    yield ast.Compare(node.left, [_COMPARISONS[operator]()], node.comparators)
    if operator in {ast.Lt, ast.LtE, ast.Gt, ast.GtE}:
        yield _not(node)


_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
}


def _arithmetic(node: ast.BinOp) -> Iterator[ast.expr]:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None:
        yield ast.BinOp(node.left, other(), node.right)


def _dictionary(node: ast.Dict) -> Iterator[ast.expr]:
    """Leave an entry out."""
    for k in range(len(node.values)):
        yield ast.Dict(
            [key for i, key in enumerate(node.keys) if i != k],
            [value for i, value in enumerate(node.values) if i != k],
        )


def _call(node: ast.Call) -> Iterator[ast.expr]:
    """Leave a named argument out."""
    for k in range(len(node.keywords)):
        rest = [keyword for i, keyword in enumerate(node.keywords) if i != k]
        yield ast.Call(node.func, node.args, rest)


def _not(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), copy.deepcopy(node))


OF_CHAT = (
    "admission",
    "ahead",
    "chat",
    "draft",
    "templates",
    "engine",
    "state",
    "rounds",
)
"""What answers chats: the recorded requests are chats, and tell nothing of the rest."""


def modules_in(folder: Path) -> dict[str, str]:
    """Read the sources of the modules that answer chats, by their name."""
    paths = (folder / f"{name}.py" for name in OF_CHAT)
    return {path.stem: path.read_text("utf-8") for path in paths if path.exists()}
