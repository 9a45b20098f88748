"""The Jinja2 environment of a team's prompts: built from `[prompts]`, or the team's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2 import (
    BaseLoader,
    Environment,
    FileSystemLoader,
    TemplateError,
    TemplateNotFound,
    Undefined,
    select_autoescape,
)
from jinja2.nativetypes import NativeEnvironment

from contract.errors import CutoverError
from cutover.own_modules import refuse_hidden
from router.config.schema import PromptSettings

_UNDEFINED: Mapping[str, type[Undefined]] = {
    "default": jinja2.Undefined,
    "strict": jinja2.StrictUndefined,
    "chainable": jinja2.ChainableUndefined,
    "debug": jinja2.DebugUndefined,
}
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


class ImportRefused(CutoverError):
    """A name in the settings cannot be imported, or is not what the setting needs."""

    def __init__(self, key: str, place: str, why: str) -> None:
        super().__init__(f"prompts.{key} = {place!r}: {why}")


def imported(key: str, place: str) -> object:
    """Import `package.module:name`, which runs the module; raises `ImportRefused`."""
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        raise ImportRefused(key, place, "expected package.module:name")
    try:
        refuse_hidden(module)
        found: object = import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
    except Exception as error:
        raise ImportRefused(key, place, f"{type(error).__name__}: {error}") from error
    return found


def environment_of(settings: PromptSettings, folder: Path) -> Environment:
    """Return the team's environment, loading from the folder first; raises `ImportRefused`."""
    team = team_environment(settings)
    own = FileSystemLoader([folder, *settings.search], encoding=settings.encoding)
    return team.overlay(loader=own if team.loader is None else _FolderFirst(own, team.loader))


def team_environment(settings: PromptSettings) -> Environment:
    """Return the environment as the team has it; raises `ImportRefused`."""
    place = settings.environment
    if not place:
        return _built(settings)
    found = imported("environment", place)
    if callable(found):
        try:
            found = found()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ImportRefused(key="environment", place=place, why=why) from error
    if isinstance(found, NativeEnvironment):
        why = "it renders Python values; a PromptTemplate renders text"
        raise ImportRefused(key="environment", place=place, why=why)
    if not isinstance(found, Environment):
        why = f"expected a jinja2.Environment, got {type(found).__name__}"
        raise ImportRefused(key="environment", place=place, why=why)
    return found


class _FolderFirst(BaseLoader):
    """Loads from the folder, then with the team's loader; refuses a name that has two texts."""

    def __init__(self, own: FileSystemLoader, team: BaseLoader) -> None:
        self._own = own
        self._team = team

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        try:
            found = self._own.get_source(environment, template)
        except TemplateNotFound:
            return self._team.get_source(environment, template)
        # In production the team's loader decides which text other templates include.
        with suppress(TemplateNotFound, RuntimeError):  # RuntimeError: a loader without sources
            if self._team.get_source(environment, template)[0] != found[0]:
                message = (
                    f"{template!r} is another text here than in the environment's own loader: "
                    "check the folder it loads from"
                )
                raise TemplateError(message)
        return found


def _built(settings: PromptSettings) -> Environment:
    syntax = {name: getattr(settings, name) for name in _SYNTAX}
    for name in ("line_statement_prefix", "line_comment_prefix"):
        syntax[name] = syntax[name] or None
    made = Environment(
        **syntax,
        extensions=[
            cast("type[Any]", imported("extensions", name)) if ":" in name else name
            for name in settings.extensions
        ],
        undefined=_undefined(settings.undefined),
        autoescape=_autoescape(setting=settings.autoescape),  # noqa: S701 (the team's own setting)
        finalize=_function("finalize", settings.finalize) if settings.finalize else None,
    )
    made.filters |= _functions("filters", settings.filters)
    made.tests |= _functions("tests", settings.tests)
    made.globals |= {
        name: imported(f"globals.{name}", place) for name, place in settings.globals.items()
    }
    return made


def _undefined(name: str) -> type[Undefined]:
    found = _UNDEFINED.get(name) or imported("undefined", name)
    if not (isinstance(found, type) and issubclass(found, Undefined)):
        why = "expected a subclass of jinja2.Undefined"
        raise ImportRefused(key="undefined", place=name, why=why)
    return found


def _autoescape(*, setting: bool | str | tuple[str, ...]) -> bool | Callable[[str | None], bool]:
    if isinstance(setting, bool):
        return setting
    if isinstance(setting, str):
        return cast("Callable[[str | None], bool]", _function("autoescape", setting))
    return select_autoescape(enabled_extensions=setting, default_for_string=False)


def _functions(key: str, places: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    return {name: _function(f"{key}.{name}", place) for name, place in places.items()}


def _function(key: str, place: str) -> Callable[..., Any]:
    found = imported(key, place)
    if not callable(found):
        raise ImportRefused(key, place, "it cannot be called")
    return found
