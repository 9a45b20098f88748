"""Templates that draw in others: as they stand there, or their macros alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jinja2 import nodes

from cutover.prompts.bounds import DEPTH_AT_MOST
from cutover.prompts.lines import line_of
from cutover.prompts.reasons import Unresolved, refusal
from cutover.prompts.templates import absent
from cutover.prompts.values import Frame, Missing, Module, Scope

if TYPE_CHECKING:
    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting
    from cutover.prompts.expressions import Expressions
    from cutover.prompts.inheritance import Bodies, Inheritance
    from cutover.prompts.templates import Templates


class Inclusion:
    """Unrolls templates, within others and by themselves."""

    def __init__(
        self,
        made: Prompting,
        expressions: Expressions,
        templates: Templates,
        inheritance: Inheritance,
        bodies: Bodies,
    ) -> None:
        self._made = made
        self._expressions = expressions
        self._templates = templates
        self._inheritance = inheritance
        self._bodies = bodies

    def template(self, name: str, outer: Frame | None, file: str, line: int) -> list[Piece]:
        """Unroll a template with those it extends, as a whole or within another."""
        depth = 0 if outer is None else outer.depth + 1
        if depth > DEPTH_AT_MOST:
            raise refusal(file, line, "include", "templates draw in each other without end")
        scope = Scope(None if outer is None else outer.scope)
        frame = Frame(name, scope, scope, False, {}, depth=depth)  # noqa: FBT003 (set for each of the line)
        return self._inheritance.line(name, frame, (file, line))

    def include(self, node: nodes.Include, frame: Frame) -> list[Piece]:
        """Unroll another template where it is drawn in; none where it may be missing."""
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
        return self.template(name, replace(frame, scope=seen), *asked)

    def take_in(self, node: nodes.Import | nodes.FromImport, frame: Frame) -> None:
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
        self._bodies.whole(self._bodies.body(parsed.body, inner), frame)
        if isinstance(node, nodes.Import):
            frame.scope.names[node.target] = Module(scope)
            return
        for entry in node.names:
            source, target = entry if isinstance(entry, tuple) else (entry, entry)
            frame.scope.names[target] = scope.names.get(source, Missing(source))
