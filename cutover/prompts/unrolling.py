"""Templates unrolled: what they write before anything is given, statement by statement."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jinja2 import nodes

from compare.layers.prompt_sources import Dynamic
from cutover.prompts.binding import assign, bind, bind_arguments, name_as
from cutover.prompts.bounds import DEPTH_AT_MOST, STEPS_AT_MOST, TEXT_AT_MOST
from cutover.prompts.expressions import CallValues, Expressions
from cutover.prompts.inclusion import Inclusion
from cutover.prompts.inheritance import Inheritance
from cutover.prompts.lines import line_of, literals
from cutover.prompts.loops import turns_of
from cutover.prompts.output import Writer
from cutover.prompts.reasons import Kind, Reason, Unresolved, reason, refusal
from cutover.prompts.templates import Templates, Unrolled
from cutover.prompts.values import (
    Frame,
    Routine,
    Text,
    Turn,
    Unsure,
    Value,
    inner_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting

_FOREIGN: tuple[tuple[Kind, str, tuple[type[nodes.Node], ...]], ...] = (
    ("macro", "a block is handed to a macro ({% call %})", (nodes.CallBlock,)),
    ("call", "an expression is run for its effect ({% do %})", (nodes.ExprStmt,)),
    ("loop", "a loop is left early", (nodes.Break, nodes.Continue)),
    ("inheritance", "it extends several, or one within a statement", (nodes.Extends,)),
)


class Unroller:
    """Unrolls one template and all that it draws in."""

    def __init__(self, made: Prompting) -> None:
        self._expressions = Expressions(made, self)
        self.found = Unrolled()
        self._writer = Writer(made, self._expressions)
        self._templates = Templates(made, self.found)
        self._inheritance = Inheritance(made, self._expressions, self._templates, self)
        self._inclusion = Inclusion(
            made, self._expressions, self._templates, self._inheritance, self
        )
        self._steps = 0
        self._calls = 0

    def unroll(self, name: str) -> Unrolled:
        """Unroll a template by its name; nothing is raised: what goes wrong is a reason."""
        try:
            self.found.pieces = tuple(self._inclusion.template(name, None, name, 1))
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

    def body(self, body: Sequence[nodes.Node], frame: Frame) -> list[Piece]:
        """Unroll statements, one after the other; what is not known of one is a piece."""
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

    def _statement(self, node: nodes.Node, frame: Frame) -> list[Piece]:
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
                return self._inheritance.block(node, frame)
            case nodes.Include():
                return self._inclusion.include(node, frame)
            case nodes.Import() | nodes.FromImport():
                self._inclusion.take_in(node, frame)
                return []
            case nodes.With():
                return self._with(node, frame)
            case nodes.FilterBlock(filter=applied, body=body):
                text = self._captured(body, frame)
                made = self._filter_block(text, applied, frame)
                return self._writer.written(made, applied, frame)
            case nodes.Scope(body=body):
                return self.body(body, inner_of(frame))
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
                return self.body(body, frame)
        return self.body(node.else_, frame)

    def _for(self, node: nodes.For, frame: Frame) -> list[Piece]:
        turns = turns_of(node, frame, self._expressions)
        out: list[Piece] = []
        for index in range(len(turns)):
            inner = inner_of(frame)
            inner.scope.names["loop"] = Turn(index, turns)
            bind(node.target, turns[index], inner)
            out += self.body(node.body, inner)
        return out if turns else self.body(node.else_, inner_of(frame))

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
        return self.whole(self.body(body, frame), frame)

    def whole(self, pieces: Sequence[Piece], frame: Frame) -> Text:
        """Put pieces together; one that is not known raises `Unresolved`."""
        for piece in pieces:
            if isinstance(piece, Dynamic):
                raise Unresolved(self._why(piece, frame))
        return Text(tuple(pieces), safe=frame.escaped)

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

    def parent(self, call: nodes.Call, frame: Frame) -> Text:
        """Run the block this one overrides; raises `Unresolved`."""
        return self._inheritance.parent(call, frame)

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
        return self.body(node.body, inner)

    def _autoescape(
        self, options: Sequence[nodes.Keyword], body: Sequence[nodes.Node], frame: Frame
    ) -> list[Piece]:
        escaped = frame.escaped
        for option in options:
            if option.key == "autoescape":
                said = "a switch of autoescape"
                escaped = bool(self._expressions.constant(option.value, frame, "autoescape", said))
        return self.body(body, replace(inner_of(frame), escaped=escaped))


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
