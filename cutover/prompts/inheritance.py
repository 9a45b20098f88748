"""Templates that extend others: each fills the blocks of its parent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from jinja2 import nodes

from cutover.prompts.bounds import DEPTH_AT_MOST
from cutover.prompts.lines import line_of
from cutover.prompts.reasons import refusal
from cutover.prompts.templates import split
from cutover.prompts.values import Frame, Override, Scope, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting
    from cutover.prompts.expressions import Expressions
    from cutover.prompts.templates import Templates

_DEFINING = nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Import, nodes.FromImport


class Bodies(Protocol):
    """Who unrolls statements."""

    def body(self, body: Sequence[nodes.Node], frame: Frame) -> list[Piece]:
        """Unroll statements, one after the other; what is not known of one is a piece."""

    def whole(self, pieces: Sequence[Piece], frame: Frame) -> Text:
        """Put pieces together; one that is not known raises `Unresolved`."""


class Inheritance:
    """Unrolls lines of inheritance, and the blocks in them."""

    def __init__(
        self, made: Prompting, expressions: Expressions, templates: Templates, bodies: Bodies
    ) -> None:
        self._made = made
        self._expressions = expressions
        self._templates = templates
        self._bodies = bodies

    def line(self, name: str, frame: Frame, asked: tuple[str, int]) -> list[Piece]:
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
            out += self._bodies.body(before, here)
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
                    out += self._bodies.body([node], frame)
                case nodes.Output() | nodes.Block():
                    continue
                case _ if isinstance(node, _DEFINING):
                    self._bodies.body([node], frame)
                case _:
                    said = "a statement stands beside the blocks of a template that extends another"
                    raise refusal(frame.file, line_of(node), "inheritance", said)
        return out

    def block(self, node: nodes.Block, frame: Frame) -> list[Piece]:
        """Unroll a block as the youngest template fills it."""
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
        return self._bodies.body(chosen.node.body, inner)

    def parent(self, call: nodes.Call, frame: Frame) -> Text:
        """Run the block this one overrides; raises `Unresolved`."""
        name, nth = frame.block or ("", 0)
        if nth + 1 >= len(frame.chain.get(name, ())):
            raise refusal(frame.file, call.lineno, "block", f"no block {name!r} is overridden here")
        outer = replace(frame, scope=Scope(frame.exports))
        return self._bodies.whole(self._override(name, nth + 1, outer), frame)
