"""Templates unrolled: what they write before anything is given, statement by statement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jinja2 import nodes

from compare.prompt_map import Dynamic
from cutover.prompts.binding import assign, bind, bind_arguments, name_as
from cutover.prompts.bounds import STEPS_AT_MOST, TEXT_AT_MOST
from cutover.prompts.expressions import CallValues, Expressions
from cutover.prompts.lines import line_of, literals
from cutover.prompts.loops import turns_of
from cutover.prompts.output import Writer
from cutover.prompts.reasons import Kind, Reason, Unresolved, reason, refusal
from cutover.prompts.templates import Templates, Unrolled, absent, split
from cutover.prompts.values import (
    Frame,
    Missing,
    Module,
    Override,
    Routine,
    Scope,
    Text,
    Turn,
    Unsure,
    Value,
    inner_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from compare.prompt_map import Piece
    from cutover.prompts.environment import Prompting

DEPTH_AT_MOST = 30
_FOREIGN: tuple[tuple[Kind, str, tuple[type[nodes.Node], ...]], ...] = (
    ("macro", "a block is handed to a macro ({% call %})", (nodes.CallBlock,)),
    ("call", "an expression is run for its effect ({% do %})", (nodes.ExprStmt,)),
    ("loop", "a loop is left early", (nodes.Break, nodes.Continue)),
    ("inheritance", "it extends several, or one within a statement", (nodes.Extends,)),
)
_DEFINING = nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Import, nodes.FromImport


class Unroller:
    """Unrolls one template and all that it draws in."""

    def __init__(self, made: Prompting) -> None:
        self._made = made
        self._expressions = Expressions(made, self)
        self.found = Unrolled()
        self._writer = Writer(made, self._expressions)
        self._templates = Templates(made, self.found)
        self._steps = 0
        self._calls = 0

    def unroll(self, name: str) -> Unrolled:
        """Unroll a template by its name; nothing is raised: what goes wrong is a reason."""
        try:
            self.found.pieces = tuple(self._template(name, None, name, 1))
        except Unresolved as unresolved:
            self._nothing(unresolved.why)
        except RecursionError:
            self._nothing(reason(name, 1, "size", "it is nested too deep"))
        self.found.cares = self._expressions.cares
        return self.found

    def _nothing(self, why: Reason) -> None:
        """Note why nothing at all is known of the template."""
        self.found.reasons.add(why)
        self.found.pieces = (Dynamic(why.kind, why.file, why.line),)

    def _template(self, name: str, outer: Frame | None, file: str, line: int) -> list[Piece]:
        """Unroll a template with those it extends, as a whole or within another."""
        depth = 0 if outer is None else outer.depth + 1
        if depth > DEPTH_AT_MOST:
            raise refusal(file, line, "include", "templates draw in each other without end")
        scope = Scope(None if outer is None else outer.scope)
        return self._line(name, Frame(name, scope, scope, False, {}, depth=depth), (file, line))  # noqa: FBT003 (set for each of the line)

    def _line(self, name: str, frame: Frame, asked: tuple[str, int]) -> list[Piece]:
        """Unroll a line of inheritance, from the youngest: each fills the blocks of its parent."""
        parsed: nodes.Template | None = self._templates.parsed(name, asked)
        out: list[Piece] = []
        seen: set[str] = set()
        while parsed is not None:
            if name in seen:
                raise refusal(*asked, "inheritance", "templates extend each other without end")
            seen.add(name)
            here = replace(frame, file=name, escaped=self._made.escaped(name))
            for block in parsed.find_all(nodes.Block):
                override = Override(block, name, here.escaped)
                here.chain.setdefault(block.name, []).append(override)
            before, extends = split(parsed)
            out += self._body(before, here)
            if extends is None:
                return out
            out += self._beside(parsed.body[len(before) + 1 :], here)
            parent = self._expressions.constant(
                extends.template, here, "inheritance", "the parent's name"
            )
            asked = name, extends.lineno
            name, parsed = self._templates.named(parent, asked, "inheritance")
        return out

    def _beside(self, body: Sequence[nodes.Node], frame: Frame) -> list[Piece]:
        """Unroll what stands beside the blocks of a template that extends another.

        Jinja2 leaves out what is written there, but for includes: they come before the parent.
        """
        out: list[Piece] = []
        for node in body:
            match node:
                case nodes.Include():
                    out += self._body([node], frame)
                case nodes.Output() | nodes.Block():
                    continue
                case _ if isinstance(node, _DEFINING):
                    self._body([node], frame)
                case _:
                    said = "a statement stands beside the blocks of a template that extends another"
                    raise refusal(frame.file, line_of(node), "inheritance", said)
        return out

    def _body(self, body: Sequence[nodes.Node], frame: Frame) -> list[Piece]:
        out: list[Piece] = []
        for node in body:
            try:
                self._step(node, frame)
                out += self._statement(node, frame)
            except Unresolved as unresolved:
                out.append(self._given_up(node, frame, unresolved.why))
        return out

    def _given_up(self, node: nodes.Node, frame: Frame, why: Reason) -> Piece:
        """Note why; what the statement would have set is not known from here on."""
        self.found.reasons.add(why)
        for below in (node, *node.find_all(nodes.Name)):
            if isinstance(below, nodes.Name) and below.ctx == "store":
                frame.scope.names[below.name] = Unsure(why)
        return Dynamic(_titled(node, why), frame.file, line_of(node))

    def _step(self, node: nodes.Node, frame: Frame) -> None:
        self._steps += 1
        if self._steps > STEPS_AT_MOST or self._writer.size > TEXT_AT_MOST:
            raise refusal(frame.file, line_of(node), "size", "it writes too much")

    def _statement(self, node: nodes.Node, frame: Frame) -> list[Piece]:  # noqa: C901, PLR0911, PLR0912 (one for each kind)
        match node:
            case nodes.Output(nodes=parts):
                return self._output(parts, frame)
            case nodes.If():
                return self._if(node, frame)
            case nodes.For():
                return self._for(node, frame)
            case nodes.Assign(target=target, node=value):
                assign(target, value, frame, self._expressions)
                return []
            case nodes.AssignBlock():
                self._assign_block(node, frame)
                return []
            case nodes.Macro(name=name):
                frame.scope.names[name] = Routine(node, frame)
                return []
            case nodes.Block():
                return self._block(node, frame)
            case nodes.Include():
                return self._include(node, frame)
            case nodes.Import() | nodes.FromImport():
                self._import(node, frame)
                return []
            case nodes.With():
                return self._with(node, frame)
            case nodes.FilterBlock(filter=applied, body=body):
                text = self._captured(body, frame)
                made = self._filter_block(text, applied, frame)
                return self._writer.written(made, applied, frame)
            case nodes.Scope(body=body):
                return self._body(body, inner_of(frame))
            case nodes.ScopedEvalContextModifier(options=options, body=body):
                return self._autoescape(options, body, frame)
            case _:
                return self._unknown(node, frame)

    @staticmethod
    def _unknown(node: nodes.Node, frame: Frame) -> NoReturn:
        said = f"an extension's statement ({type(node).__name__})"
        for kind, text, types in _FOREIGN:
            if isinstance(node, types):
                raise refusal(frame.file, line_of(node), kind, text)
        raise refusal(frame.file, line_of(node), "extension", said)

    def _output(self, parts: Sequence[nodes.Expr], frame: Frame) -> list[Piece]:
        out: list[Piece] = []
        for part in parts:
            try:
                self._step(part, frame)
                if isinstance(part, nodes.TemplateData):
                    out += self._writer.sized(literals(part.data, frame.file, part.lineno))
                else:
                    out += self._writer.written(self._expressions.value(part, frame), part, frame)
            except Unresolved as unresolved:
                out.append(self._given_up(part, frame, unresolved.why))
        return out

    def _if(self, node: nodes.If, frame: Frame) -> list[Piece]:
        for test, body in ((node.test, node.body), *((e.test, e.body) for e in node.elif_)):
            if self._expressions.constant(test, frame, "condition", "a condition"):
                return self._body(body, frame)
        return self._body(node.else_, frame)

    def _for(self, node: nodes.For, frame: Frame) -> list[Piece]:
        turns = turns_of(node, frame, self._expressions)
        out: list[Piece] = []
        for index in range(len(turns)):
            inner = inner_of(frame)
            inner.scope.names["loop"] = Turn(index, turns)
            bind(node.target, turns[index], inner)
            out += self._body(node.body, inner)
        return out if turns else self._body(node.else_, inner_of(frame))

    def _assign_block(self, node: nodes.AssignBlock, frame: Frame) -> None:
        own = node.target.name if isinstance(node.target, nodes.Name) else ""
        if any(name.name == own for below in node.body for name in below.find_all(nodes.Name)):
            # Whose it is there depends on the scopes around it, in ways nobody relies on.
            said = f"the text set as {own!r} reads {own!r} itself"
            raise refusal(frame.file, line_of(node), "expression", said)
        value: Value = self._captured(node.body, inner_of(frame))
        if node.filter is not None:
            value = self._filter_block(value, node.filter, frame)
        name_as(node.target, value, frame)

    def _captured(self, body: Sequence[nodes.Node], frame: Frame) -> Text:
        """Unroll a body into a text; what is not known of it raises `Unresolved`."""
        pieces = tuple(self._body(body, frame))
        for piece in pieces:
            if isinstance(piece, Dynamic):
                raise Unresolved(self._why(piece, frame))
        return Text(pieces, safe=frame.escaped)

    def _why(self, piece: Dynamic, frame: Frame) -> Reason:
        """Find the reason for a piece among those noted."""
        at = [why for why in self.found.reasons if (why.file, why.line) == (piece.file, piece.line)]
        said = f"it holds what is only known later ({piece.what})"
        return min(at, default=reason(frame.file, piece.line, "expression", said))

    def _filter_block(self, text: Value, applied: nodes.Filter, frame: Frame) -> Value:
        """Apply the filters of a block, innermost first."""
        if isinstance(applied.node, nodes.Filter):
            text = self._filter_block(text, applied.node, frame)
        args = [
            self._expressions.constant(arg, frame, "filter", "a filter") for arg in applied.args
        ]
        options = {
            str(pair.key): self._expressions.constant(pair.value, frame, "filter", "a filter")
            for pair in applied.kwargs
        }
        return self._expressions.filtered(text, applied, (args, options), frame)

    def _block(self, node: nodes.Block, frame: Frame) -> list[Piece]:
        if node.required and len(frame.chain[node.name]) <= 1:
            said = f"the block {node.name!r} has to be filled by a template that extends this one"
            raise refusal(frame.file, line_of(node), "block", said)
        parent = frame.scope if node.scoped else frame.exports
        return self._override(node.name, 0, replace(frame, scope=Scope(parent)))

    def _override(self, name: str, nth: int, frame: Frame) -> list[Piece]:
        chosen = frame.chain[name][nth]
        inner = replace(
            frame,
            file=chosen.file,
            escaped=chosen.escaped,
            block=(name, nth),
            depth=frame.depth + 1,
        )
        if inner.depth > DEPTH_AT_MOST:
            raise refusal(chosen.file, chosen.node.lineno, "block", "blocks are nested too deep")
        return self._body(chosen.node.body, inner)

    def parent(self, call: nodes.Call, frame: Frame) -> Text:
        """Run the block this one overrides; raises `Unresolved`."""
        name, nth = frame.block or ("", 0)
        if nth + 1 >= len(frame.chain.get(name, ())):
            raise refusal(frame.file, call.lineno, "block", f"no block {name!r} is overridden here")
        outer = replace(frame, scope=Scope(frame.exports))
        pieces = tuple(self._override(name, nth + 1, outer))
        return self._whole(pieces, frame)

    def _whole(self, pieces: tuple[Piece, ...], frame: Frame) -> Text:
        for piece in pieces:
            if isinstance(piece, Dynamic):
                raise Unresolved(self._why(piece, frame))
        return Text(pieces, safe=frame.escaped)

    def _include(self, node: nodes.Include, frame: Frame) -> list[Piece]:
        wanted = self._expressions.constant(node.template, frame, "include", "an included name")
        asked = frame.file, line_of(node)
        try:
            name, _ = self._templates.named(wanted, asked, "include")
        except Unresolved as unresolved:
            if node.ignore_missing and absent(unresolved):
                return []
            raise
        if frame.depth >= DEPTH_AT_MOST:
            raise refusal(*asked, "include", "templates draw in each other without end")
        seen = frame.scope if node.with_context else Scope(closed=True)
        return self._template(name, replace(frame, scope=seen), *asked)

    def _import(self, node: nodes.Import | nodes.FromImport, frame: Frame) -> None:
        """Take in the macros of another template, if it only defines."""
        wanted = self._expressions.constant(node.template, frame, "import", "an imported name")
        asked = frame.file, line_of(node)
        name, parsed = self._templates.named(wanted, asked, "import")
        if frame.depth >= DEPTH_AT_MOST:
            raise refusal(*asked, "import", "templates draw in each other without end")
        scope = Scope(frame.scope if node.with_context else Scope(closed=True))
        inner = Frame(name, scope, scope, self._made.escaped(name), {}, depth=frame.depth + 1)
        if parsed.find(nodes.Extends) is not None or parsed.find(nodes.Block) is not None:
            raise refusal(*asked, "import", f"{name!r} has blocks")
        self._whole(tuple(self._body(parsed.body, inner)), frame)
        if isinstance(node, nodes.Import):
            frame.scope.names[node.target] = Module(scope)
            return
        for entry in node.names:
            source, target = entry if isinstance(entry, tuple) else (entry, entry)
            frame.scope.names[target] = scope.names.get(source, Missing(source))

    def macro(self, routine: Routine, call: nodes.Call, values: CallValues) -> Text:
        """Run a macro; raises `Unresolved`."""
        frame = routine.frame
        inner = replace(inner_of(frame), block=None)
        if self._calls >= DEPTH_AT_MOST or self._steps > STEPS_AT_MOST:
            said = "macros call each other without end"
            raise refusal(frame.file, call.lineno, "macro", said)
        self._calls += 1
        try:
            bind_arguments(routine, values, inner, self._expressions)
            return self._captured(routine.node.body, inner)
        finally:
            self._calls -= 1

    def _with(self, node: nodes.With, frame: Frame) -> list[Piece]:
        inner = inner_of(frame)
        values = [self._expressions.value(value, frame) for value in node.values]
        for target, value in zip(node.targets, values, strict=True):
            name_as(target, value, inner)
        return self._body(node.body, inner)

    def _autoescape(
        self, options: Sequence[nodes.Keyword], body: Sequence[nodes.Node], frame: Frame
    ) -> list[Piece]:
        escaped = frame.escaped
        for option in options:
            if option.key == "autoescape":
                said = "a switch of autoescape"
                escaped = bool(self._expressions.constant(option.value, frame, "autoescape", said))
        return self._body(body, replace(inner_of(frame), escaped=escaped))


def _titled(node: nodes.Node, why: Reason) -> str:
    """Name a statement for the map of prompts."""
    match node:
        case nodes.For():
            return "for"
        case nodes.If():
            return "if"
        case nodes.Filter(name=name):
            return f"filter {name}"
        case _:
            return why.kind
