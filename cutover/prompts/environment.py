"""The Jinja2 environment of a team's prompts, made from `[prompts]` or from the team's own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2 import (
    BaseLoader,
    Environment,
    FileSystemLoader,
    TemplateError,
    TemplateNotFound,
    select_autoescape,
)
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.filters import FILTERS
from jinja2.nativetypes import NativeEnvironment
from jinja2.tests import TESTS

from cutover.prompts.places import NotThere, imported
from cutover.prompts.sandbox import Sandbox, at_run_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from jinja2 import Undefined, nodes

    from cutover.prompts.reasons import Reach
    from router.config import PromptSettings

_UNDEFINED: Mapping[str, type[Undefined]] = {
    "default": jinja2.Undefined,
    "strict": jinja2.StrictUndefined,
    "chainable": jinja2.ChainableUndefined,
    "debug": jinja2.DebugUndefined,
}
_NO_UNDEFINED = "no subclass of jinja2.Undefined"
_NOT_CALLED = "it cannot be called"
_TWO = (
    "{!r} is another text here than in the environment's own loader: "
    "check the folder that one loads from"
)
_SYNTAX = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
)


@dataclass(frozen=True, slots=True)
class Prompting:
    """An environment, and which of its names are Jinja2's own."""

    environment: Sandbox
    filters: Mapping[str, Callable[..., Any]]
    tests: Mapping[str, Callable[..., Any]]
    own_globals: frozenset[str]
    silent: bool
    encoding: str = "utf-8"
    drawn_in: dict[str, tuple[nodes.Template, list[Reach]]] = field(default_factory=dict)

    def escaped(self, name: str) -> bool:
        """Whether the values in a template of that name are escaped."""
        chosen = self.environment.autoescape
        return bool(chosen(name)) if callable(chosen) else bool(chosen)


def prompting(settings: PromptSettings, folder: Path) -> Prompting:
    """Make the environment of a folder; raises `NotThere`."""
    team = team_environment(settings, folder)
    encoding = settings.encoding
    loader = FileSystemLoader([folder, *settings.search], encoding=encoding)
    environment = _bounded(type(team))(
        **{name: getattr(team, name) for name in _SYNTAX},
        extensions=[type(extension) for extension in team.extensions.values()],
        undefined=team.undefined,
        finalize=team.finalize,
        autoescape=team.autoescape,
        loader=_both(loader, team.loader),
        cache_size=400,
    )
    own = {key: value for key, value in team.globals.items() if key not in DEFAULT_NAMESPACE}
    own |= {k: v for k, v in team.globals.items() if DEFAULT_NAMESPACE.get(k, v) is not v}
    environment.globals.update(own)
    environment.policies.update(team.policies)
    environment.tests.update(team.tests)
    environment.filters = {name: at_run_time(name, made) for name, made in team.filters.items()}
    return Prompting(
        environment,
        _built_in(team.filters, FILTERS),
        _built_in(team.tests, TESTS),
        frozenset(own),
        silent=team.undefined in {jinja2.Undefined, jinja2.ChainableUndefined},
        encoding=encoding,
    )


def _bounded(kind: type[Environment]) -> type[Sandbox]:
    """Give the sandbox of a class of environments, so that a team's own methods hold, too."""
    if issubclass(Sandbox, kind):
        return Sandbox
    return type("Sandbox", (Sandbox, kind), {})


def _built_in(named: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what is Jinja2's own: what a team put in its place does who knows what."""
    return {name: made for name, made in named.items() if known.get(name) is made}


class _Both(BaseLoader):
    """A folder, then the team's own loader; a name that is two texts is nobody's."""

    def __init__(self, own: FileSystemLoader, other: BaseLoader) -> None:
        self._own = own
        self._other = other

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        """Give a template's text; raises `TemplateError`."""
        try:
            found = self._own.get_source(environment, template)
        except TemplateNotFound:
            return self._other.get_source(environment, template)
        # In production the team's loader decides: what it gives is what others include.
        with suppress(TemplateNotFound, RuntimeError):  # the latter: it has no sources
            if self._other.get_source(environment, template)[0] != found[0]:
                raise TemplateError(_TWO.format(template))
        return found


def _both(own: FileSystemLoader, other: BaseLoader | None) -> BaseLoader:
    return own if other is None else _Both(own, other)


def team_environment(settings: PromptSettings, folder: Path) -> Environment:
    """Make the environment as the team has it, without a place to load from; raises `NotThere`."""
    if not settings.environment:
        return _described(settings)
    found = _called("environment", settings.environment)
    if not isinstance(found, Environment):
        why = f"no jinja2.Environment for {str(folder)!r}, but {type(found).__name__}"
        raise NotThere(key="environment", place=settings.environment, why=why)
    if isinstance(found, NativeEnvironment):
        why = "it renders values of Python, not text: a PromptTemplate renders text"
        raise NotThere(key="environment", place=settings.environment, why=why)
    return found


def _called(key: str, place: str) -> object:
    """Import a thing, or have it made by what is imported."""
    found = imported(key, place)
    if not callable(found):
        return found
    try:
        return found()
    except Exception as error:
        raise NotThere(key, place, f"{type(error).__name__}: {error}") from error


def _described(settings: PromptSettings) -> Environment:
    """Make an environment from settings; an empty prefix is none."""
    syntax = {name: getattr(settings, name) for name in _SYNTAX}
    for name in ("line_statement_prefix", "line_comment_prefix"):
        syntax[name] = syntax[name] or None
    made = Environment(
        **syntax,
        extensions=[_extension(name) for name in settings.extensions],
        undefined=_undefined(settings.undefined),
        autoescape=_autoescape(settings.autoescape),  # noqa: S701 (the team's own setting holds)
        finalize=_function("finalize", settings.finalize) if settings.finalize else None,
    )
    made.filters |= _functions("filters", settings.filters)
    made.tests |= _functions("tests", settings.tests)
    made.globals |= {
        name: imported(f"globals.{name}", place) for name, place in settings.globals.items()
    }
    return made


def _extension(name: str) -> str | type[Any]:
    return cast("type[Any]", imported("extensions", name)) if ":" in name else name


def _undefined(name: str) -> type[Undefined]:
    if name in _UNDEFINED:
        return _UNDEFINED[name]
    found = imported("undefined", name)
    if not (isinstance(found, type) and issubclass(found, jinja2.Undefined)):
        raise NotThere(key="undefined", place=name, why=_NO_UNDEFINED)
    return found


def _autoescape(said: bool | str | tuple[str, ...]) -> bool | Callable[[str | None], bool]:  # noqa: FBT001 (as in the file)
    match said:
        case bool():
            return said
        case str():
            return cast("Callable[[str | None], bool]", _function("autoescape", said))
        case _:
            return select_autoescape(enabled_extensions=said, default_for_string=False)


def _functions(key: str, places: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    return {name: _function(f"{key}.{name}", place) for name, place in places.items()}


def _function(key: str, place: str) -> Callable[..., Any]:
    found = imported(key, place)
    if not callable(found):
        raise NotThere(key, place, _NOT_CALLED)
    return found
