"""Templates as they are loaded and parsed, by the team's own environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import TemplateError, TemplateNotFound, nodes

from cutover.prompts.bounds import TEXT_AT_MOST
from cutover.prompts.reaches import reaches
from cutover.prompts.reasons import Care, Kind, Reach, Reason, Unresolved, refusal

if TYPE_CHECKING:
    from compare.layers.prompt_sources import Piece
    from cutover.prompts.environment import Prompting

_NOT_THERE = "is not there"


class Unrolled:
    """What unrolling one template gave: its pieces, and all there is to say of it."""

    def __init__(self) -> None:
        self.pieces: tuple[Piece, ...] = ()
        self.reasons: set[Reason] = set()
        self.cares: set[Care] = set()
        self.reaches: set[Reach] = set()
        self.own: nodes.Template | None = None


class Templates:
    """Loads templates; notes which, and what they reach into."""

    def __init__(self, made: Prompting, found: Unrolled) -> None:
        self._made = made
        self._environment = made.environment
        self._found = found

    def parsed(self, name: str, asked: tuple[str, int]) -> nodes.Template:
        """Load and parse a template; raises `Unresolved` at the place that asks for it.

        Those that others draw in are parsed once for all.
        """
        drawn_in = name != asked[0]
        parsed, reached = self._made.drawn_in.get(name) or self._read(name, asked)
        if drawn_in:
            self._made.drawn_in[name] = parsed, reached
        self._found.reaches.update(reached)
        self._found.own = self._found.own or parsed
        return parsed

    def _read(self, name: str, asked: tuple[str, int]) -> tuple[nodes.Template, list[Reach]]:
        loader = self._environment.loader
        if loader is None:  # there always is one
            raise refusal(*asked, "unreadable", "there is nowhere to load templates from")
        try:
            source, path, _ = loader.get_source(self._environment, name)
            if len(source) > TEXT_AT_MOST:
                raise refusal(name, 1, "size", f"it has more than {TEXT_AT_MOST:,} letters")
            parsed = self._environment.parse(source, name, path)
        except TemplateNotFound as error:
            raise refusal(*asked, "include", f"template {error.name!r} {_NOT_THERE}") from error
        except TemplateError as error:
            line = getattr(error, "lineno", 1)
            raise refusal(name, line, "syntax", str(error.message)) from error
        except RecursionError as error:
            raise refusal(name, 1, "syntax", "it is nested too deep") from error
        except (OSError, UnicodeError) as error:
            raise refusal(name, 1, "unreadable", f"it cannot be read: {error}") from error
        return parsed, reaches(parsed, name)

    def named(
        self, wanted: object, asked: tuple[str, int], kind: Kind
    ) -> tuple[str, nodes.Template]:
        """Load the template of a name, or the first there is of several; raises `Unresolved`."""
        names = [wanted] if isinstance(wanted, str) else wanted
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise refusal(*asked, kind, "a template is named by what is no text")
        for wanted_name in names:
            name = self._environment.join_path(wanted_name, asked[0])
            try:
                return name, self.parsed(name, asked)
            except Unresolved as unresolved:
                if not absent(unresolved) or wanted_name == names[-1]:
                    raise
        raise refusal(*asked, kind, "no template is named")


def absent(unresolved: Unresolved) -> bool:
    """Whether a template could not be loaded because there is none of its name."""
    return unresolved.why.said.endswith(_NOT_THERE)


def split(template: nodes.Template) -> tuple[list[nodes.Node], nodes.Extends | None]:
    """Split a template where it begins to extend another: only what is before is written."""
    for index, node in enumerate(template.body):
        if isinstance(node, nodes.Extends):
            return list(template.body[:index]), node
    return list(template.body), None
