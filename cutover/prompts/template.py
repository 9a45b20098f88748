"""A template read by Jinja2's own parser and optimizer: its text in pieces, and what stays.

What is constant before anything is rendered becomes text: literal text, `raw`, constant
expressions, includes and inheritance by constant names. Names become variables, and so do
attributes and items (`user.name` becomes `user_name`). Everything else stays with Jinja2, with
the line and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec
from jinja2 import DictLoader, Environment, TemplateError, TemplateNotFound, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.optimizer import Optimizer
from jinja2.tests import TESTS
from markupsafe import escape

from compare.layers import prompt_sources
from compare.layers.prompt_sources import Piece

StayKind: TypeAlias = Literal[
    "attribute",
    "autoescape",
    "block",
    "call",
    "condition",
    "encoding",
    "expression",
    "filter",
    "finalize",
    "import",
    "include",
    "inheritance",
    "loop",
    "macro",
    "name",
    "set",
    "size",
    "syntax",
    "tag",
    "test",
    "undefined",
    "unreadable",
    "unproven",
]
CautionKind: TypeAlias = Literal[
    "attribute", "byte order mark", "carriage return", "empty", "global"
]
ValuePath: TypeAlias = tuple[str | int, ...]
"""Where a value comes from: the name of a variable, then attributes and items."""

_FUNCTION = "keep the compiled Jinja2 template behind a function"
_COMPUTE = "compute it in Python and pass the text as a variable"
REMEDIES: Mapping[StayKind, str] = {
    "attribute": "pass the value itself as a variable of its own name",
    "autoescape": "switch autoescape off, or escape the value in Python and pass it",
    "block": "write the block's text where it is used",
    "call": "call it in Python and pass the result as a variable",
    "condition": "choose the text in Python and pass it as a variable, or write two prompts",
    "encoding": "pass these letters as a variable, or set another `[prompts] encoding`",
    "expression": _COMPUTE,
    "filter": "apply it in Python and pass the result as a variable",
    "finalize": "apply it in Python to each value that is passed",
    "import": f"write the macro's text where it is used, or {_FUNCTION}",
    "include": "name the file in the template itself, or join the texts in Python",
    "inheritance": "name the parent in the template itself, or join the texts in Python",
    "loop": "join the lines in Python and pass them as a variable",
    "macro": "write its text where it is used, or compute it in Python and pass it as a variable",
    "name": "rename the variable: it has another meaning in Jinja2 or PromptTemplate",
    "set": "write the value where it is used, or pass it as a variable",
    "size": "keep long texts out of the template and pass them as variables",
    "syntax": "correct the template, or set the options of its environment in `[prompts]`",
    "tag": _FUNCTION,
    "test": "test it in Python and pass the text as a variable",
    "undefined": "pass the value as a variable, or remove it",
    "unreadable": "correct the file, or set `[prompts]` encoding and folders",
    "unproven": f"{_FUNCTION}, and report this case",
}
RESERVED = frozenset({"self", "stop"})
"""Names that PromptTemplate or Jinja2 keep for themselves."""
LONGEST_TEXT = 1_000_000
_DEEPEST = 30
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_STATEMENTS: Mapping[type[nodes.Node], tuple[StayKind, str]] = {
    nodes.Macro: ("macro", "a macro is defined"),
    nodes.CallBlock: ("macro", "a macro is called with a block"),
    nodes.FilterBlock: ("filter", "a block is filtered"),
    nodes.Assign: ("set", "a name is set"),
    nodes.AssignBlock: ("set", "a name is set"),
    nodes.With: ("set", "names are set for a block"),
    nodes.Import: ("import", "macros are imported"),
    nodes.FromImport: ("import", "macros are imported"),
    nodes.Extends: ("inheritance", "the parent is chosen by a statement"),
    nodes.Scope: ("autoescape", "autoescape is switched for a block"),
    nodes.ExprStmt: ("call", "an expression is run for its effect"),
}
_EXPRESSIONS: Mapping[type[nodes.Node], StayKind] = {
    nodes.Filter: "filter",
    nodes.Test: "test",
    nodes.CondExpr: "condition",
    nodes.Call: "call",
    nodes.MarkSafeIfAutoescape: "call",
    nodes.Getattr: "attribute",
    nodes.Getitem: "attribute",
}


class StayReason(msgspec.Struct, frozen=True, order=True):
    """Why a template stays: where, what was found, what to do."""

    file: str
    line: int
    kind: StayKind
    detail: str
    todo: str


class Caution(msgspec.Struct, frozen=True, order=True):
    """What to know of a template that converts."""

    file: str
    line: int
    kind: CautionKind
    detail: str


def reason(file: str, line: int, kind: StayKind, detail: str) -> StayReason:
    """Return a reason with what to do about its kind."""
    return StayReason(file, line, kind, detail, REMEDIES[kind])


@dataclass(slots=True)
class TemplateReading:
    """What reading one template gave; `paths` maps each variable to where its value comes from."""

    pieces: list[Piece] = field(default_factory=list)
    paths: dict[str, ValuePath] = field(default_factory=dict)
    reasons: set[StayReason] = field(default_factory=set)
    cautions: set[Caution] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Place:
    """A template within a line of inheritance: its blocks, youngest first, and the current one."""

    file: str
    blocks: Mapping[str, list[tuple[nodes.Block, str]]]
    block: tuple[str, int] | None = None
    depth: int = 0
    context: bool = True


class _Unreadable(Exception):
    """A template cannot be loaded; carries the reason."""

    def __init__(self, why: StayReason, *, missing: bool = False) -> None:
        super().__init__(why.detail)
        self.why = why
        self.missing = missing


def read_template(environment: Environment, name: str) -> TemplateReading:
    """Read a template by its name, with what it includes and extends. Renders nothing."""
    reader = _Reader(environment)
    try:
        reader.template(name, _Place(name, {}), (name, 1))
    except _Unreadable as error:
        reader.found.reasons.add(error.why)
    except RecursionError:
        reader.found.reasons.add(reason(name, 1, "syntax", "it is nested too deep"))
    return reader.found


class _Reader:
    """Collects the pieces of one template and of those it names."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.found = TemplateReading()

    def template(self, name: str, outer: _Place, asked: tuple[str, int]) -> None:
        if outer.depth > _DEEPEST:
            raise _Unreadable(reason(*asked, "include", "templates include each other without end"))
        lineage = self._lineage(name, asked)
        blocks: dict[str, list[tuple[nodes.Block, str]]] = {}
        for file, parsed in lineage:
            for block in parsed.find_all(nodes.Block):
                blocks.setdefault(block.name, []).append((block, file))
        for file, parsed in lineage:
            place = _Place(file, blocks, None, outer.depth, outer.context)
            extends = next((n for n in parsed.body if isinstance(n, nodes.Extends)), None)
            if extends is None:
                self.body(parsed.body, place)
                return
            at = parsed.body.index(extends)
            self.body(parsed.body[:at], place)
            for node in parsed.body[at + 1 :]:
                if not isinstance(node, nodes.Output | nodes.Block):
                    self._stay(
                        node, place, "inheritance", "a statement outside the blocks of a child"
                    )

    def _lineage(self, name: str, asked: tuple[str, int]) -> list[tuple[str, nodes.Template]]:
        """Load a template and its parents, youngest first."""
        found: list[tuple[str, nodes.Template]] = []
        while True:
            parsed = self._parsed(name, asked)
            found.append((name, parsed))
            extends = next((n for n in parsed.body if isinstance(n, nodes.Extends)), None)
            if extends is None:
                return found
            parent = extends.template
            asked = name, extends.lineno
            if not (isinstance(parent, nodes.Const) and isinstance(parent.value, str)):
                raise _Unreadable(reason(*asked, "inheritance", "the parent's name is computed"))
            name = self.environment.join_path(parent.value, name)
            if len(found) > _DEEPEST:
                raise _Unreadable(reason(*asked, "inheritance", "templates extend without end"))

    def _parsed(self, name: str, asked: tuple[str, int]) -> nodes.Template:
        loader = self.environment.loader or DictLoader({})
        try:
            source, path, _ = loader.get_source(self.environment, name)
            if len(source) > LONGEST_TEXT:
                detail = f"it has more than {LONGEST_TEXT:,} letters"
                raise _Unreadable(reason(name, 1, "size", detail))
            return self.environment.parse(source, name, path)
        except TemplateNotFound as error:
            why = reason(*asked, "include", f"template {error.name!r} is missing")
            raise _Unreadable(why, missing=True) from error
        except TemplateError as error:
            line = getattr(error, "lineno", 1)
            raise _Unreadable(reason(name, line, "syntax", str(error.message))) from error
        except (OSError, UnicodeError) as error:
            raise _Unreadable(
                reason(name, 1, "unreadable", f"it cannot be read: {error}")
            ) from error

    def body(self, body: Sequence[nodes.Node], place: _Place) -> None:
        for node in body:
            match node:
                case nodes.Output(nodes=expressions):
                    for expression in expressions:
                        self._output(expression, place)
                case nodes.Block():
                    self._block(node, place)
                case nodes.Include():
                    self._include(node, place)
                case nodes.For(iter=below):
                    self._stay(node, place, "loop", f"a loop over {_described(below)}")
                case nodes.If(test=below):
                    self._stay(node, place, "condition", f"a condition on {_described(below)}")
                case _:
                    kind, detail = _STATEMENTS.get(
                        type(node), ("tag", f"{type(node).__name__} is not converted")
                    )
                    self._stay(node, place, kind, detail)

    def _block(self, node: nodes.Block, place: _Place) -> None:
        if node.required and len(place.blocks[node.name]) == 1:
            detail = f"the block {node.name!r} has to be filled by a child"
            self._stay(node, place, "block", detail)
            return
        self._filled_block(node.name, 0, place, node.lineno)

    def _filled_block(self, name: str, generation: int, place: _Place, line: int) -> None:
        chain = place.blocks.get(name, [])
        if generation >= len(chain) or place.depth > _DEEPEST:
            raise _Unreadable(reason(place.file, line, "block", f"no parent has a block {name!r}"))
        block, file = chain[generation]
        inner = _Place(file, place.blocks, (name, generation), place.depth + 1, place.context)
        self.body(block.body, inner)

    def _include(self, node: nodes.Include, place: _Place) -> None:
        wanted = node.template
        if not (isinstance(wanted, nodes.Const) and isinstance(wanted.value, str)):
            self._stay(node, place, "include", "the name of an included template is computed")
            return
        name = self.environment.join_path(wanted.value, place.file)
        context = place.context and node.with_context
        inner = _Place(name, {}, None, place.depth + 1, context)
        try:
            self.template(name, inner, (place.file, node.lineno))
        except _Unreadable as error:
            if not (error.missing and node.ignore_missing):
                self.found.reasons.add(error.why)
                self.found.pieces.append(prompt_sources.Dynamic("include", place.file, node.lineno))

    def _output(self, node: nodes.Expr, place: _Place) -> None:
        escaped = self._escaped(place.file)
        if isinstance(node, nodes.TemplateData):
            self._literal(node.data, place.file, node.lineno, lines=True)
            return
        if (
            isinstance(node, nodes.Call)
            and isinstance(node.node, nodes.Name)
            and node.node.name == "super"
            and place.block is not None
        ):
            name, generation = place.block
            self._filled_block(name, generation + 1, place, node.lineno)
            return
        if own := self._own_function(node):
            self._stay(node, place, *own)
            return
        folded = self._folded(node, place)
        if self.environment.finalize is not None:
            self._stay(node, place, "finalize", "the environment finalizes each value")
        elif isinstance(folded, nodes.Const):
            text = str(escape(folded.value)) if escaped else str(folded.value)
            if len(text) > LONGEST_TEXT:
                self._stay(node, place, "size", f"it writes more than {LONGEST_TEXT:,} letters")
            else:
                self._literal(text, place.file, node.lineno)
        elif (path := _path_of(folded)) is None:
            kind = _EXPRESSIONS.get(type(folded), "expression")
            self._stay(node, place, kind, f"{_described(folded)} is computed")
        elif refusal := self._refused_name(path, place):
            self._stay(node, place, *refusal)
        elif escaped:
            detail = f"autoescape changes <, >, & and quotes of {_dotted(path)!r}"
            self._stay(node, place, "autoescape", detail)
        else:
            self._variable(path, node, place)

    def _escaped(self, file: str) -> bool:
        chosen = self.environment.autoescape
        return bool(chosen(file)) if callable(chosen) else bool(chosen)

    def _folded(self, node: nodes.Expr, place: _Place) -> nodes.Node:
        context = EvalContext(self.environment, place.file)
        try:
            folded: nodes.Node = Optimizer(self.environment).visit(node, context)
        except Exception:  # noqa: BLE001 (a filter of the template's own constants may raise anything)
            return node
        return folded

    def _own_function(self, node: nodes.Expr) -> tuple[StayKind, str] | None:
        """Refuse filters and tests of the team: their result may change with each rendering."""
        for below in (node, *node.find_all((nodes.Filter, nodes.Test))):
            match below:
                case nodes.Filter(name=name) if self.environment.filters.get(
                    name
                ) is not FILTERS.get(name):
                    return "filter", f"filter {name!r} is not Jinja2's own"
                case nodes.Test(name=name) if self.environment.tests.get(name) is not TESTS.get(
                    name
                ):
                    return "test", f"test {name!r} is not Jinja2's own"
                case _:
                    pass
        return None

    def _refused_name(self, path: ValuePath, place: _Place) -> tuple[StayKind, str] | None:
        name = str(path[0])
        if any(str(step).startswith("_") for step in path[1:]) or name.startswith("__"):
            return "attribute", f"{_dotted(path)!r} reaches into Python objects"
        if name in RESERVED:
            return "name", f"{name!r} cannot be a variable of a PromptTemplate"
        if not place.context:
            return "undefined", f"{name!r} is read in a template included without context"
        known = self.environment.globals.get(name)
        if known is not None and known is DEFAULT_NAMESPACE.get(name):
            return "name", f"{name!r} is a function of Jinja2"
        return None

    def _variable(self, path: ValuePath, node: nodes.Expr, place: _Place) -> None:
        name = "_".join(map(str, path))
        for other, known in self.found.paths.items():
            whole = path[: len(known)] == known or known[: len(path)] == path
            if known != path and (other == name or whole):
                detail = f"{_dotted(path)!r} and {_dotted(known)!r} cannot both be variables"
                self._stay(node, place, "attribute", detail)
                return
        if len(path) > 1:
            detail = f"pass {_dotted(path)!r} as the variable {name!r}"
            self.found.cautions.add(Caution(place.file, node.lineno, "attribute", detail))
        if path[0] in self.environment.globals:
            detail = f"the global {path[0]!r} becomes a variable: pass it with the others"
            self.found.cautions.add(Caution(place.file, node.lineno, "global", detail))
        self.found.paths[name] = path
        self.found.pieces.append(prompt_sources.Variable(name, place.file, node.lineno))

    def _literal(self, text: str, file: str, line: int, *, lines: bool = False) -> None:
        """Append text line by line; only literal text of the template spans `lines` of the file."""
        for offset, part in enumerate(_LINE.findall(text)):
            self.found.pieces.append(prompt_sources.Literal(part, file, line + offset * lines))

    def _stay(self, node: nodes.Node, place: _Place, kind: StayKind, detail: str) -> None:
        line = node.lineno or next((n.lineno for n in node.find_all(nodes.Node) if n.lineno), 1)
        self.found.reasons.add(reason(place.file, line, kind, detail))
        what: str = kind
        match node:
            case nodes.For():
                what = "for"
            case nodes.If():
                what = "if"
            case nodes.Filter(name=name):
                what = f"filter {name}"
            case _:
                pass
        self.found.pieces.append(prompt_sources.Dynamic(what, place.file, line))


def _path_of(node: nodes.Node) -> ValuePath | None:
    """Return the name, attributes and constant items that an expression reads, if nothing else."""
    match node:
        case nodes.Name(name=name):
            return (str(name),)
        case nodes.Getattr(node=owner, attr=attr) if (path := _path_of(owner)) is not None:
            return (*path, str(attr))
        case nodes.Getitem(node=owner, arg=nodes.Const(value=str() | int() as key)) if (
            path := _path_of(owner)
        ) is not None:
            usable = key.isidentifier() if isinstance(key, str) else key >= 0
            return (*path, key) if usable else None
        case _:
            return None


def _dotted(path: ValuePath) -> str:
    return ".".join(map(str, path))


def _described(node: nodes.Node) -> str:
    """Name an expression for people by the names in it."""
    names = dict.fromkeys(repr(n.name) for n in node.find_all(nodes.Name))
    match node:
        case nodes.Name(name=name):
            return repr(name)
        case nodes.Filter(name=name):
            return f"filter {name!r}" + (f" of {', '.join(names)}" if names else "")
        case nodes.Test(name=name):
            return f"test {name!r}" + (f" of {', '.join(names)}" if names else "")
        case nodes.Call(node=nodes.Name(name=name)):
            return f"a call of {name}()"
        case nodes.Call(node=nodes.Getattr(attr=attr)):
            return f"a call of {attr}()"
        case _:
            return f"an expression of {', '.join(names)}" if names else "an expression"


def encodable(pieces: Iterable[Piece], encoding: str) -> tuple[tuple[Piece, ...], set[StayReason]]:
    """Replace each text that a file of this encoding, or the map, cannot hold; return why."""
    kept: list[Piece] = []
    reasons = set()
    for piece in pieces:
        lacking = _lacking(piece, encoding)
        if lacking:
            detail = f"it writes letters that {lacking} does not have"
            reasons.add(reason(piece.file, piece.line, "encoding", detail))
            kept.append(prompt_sources.Dynamic("encoding", piece.file, piece.line))
        else:
            kept.append(piece)
    return tuple(kept), reasons


def _lacking(piece: Piece, encoding: str) -> str:
    """Name the first encoding that cannot hold a piece; the map is UTF-8 whatever prompts are."""
    if not isinstance(piece, prompt_sources.Literal):
        return ""
    for name in (encoding, "utf-8"):
        try:
            piece.text.encode(name)
        except UnicodeEncodeError:
            return name
    return ""
