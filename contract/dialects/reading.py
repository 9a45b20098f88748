"""Reading dialects: the built-in ones, and the text of any other."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from contract.declared import DeclarationRefused, converted, parsed
from contract.dialects.file import DialectFile, TextPlace, choices_of
from contract.paths import ANY_DEPTH, path_fault, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.dialects.file import Places, Tools

_SUFFIX = ".toml"


@cache
def built_in() -> dict[str, DialectFile]:
    """Give the dialects that come along, by name: they are part of the code."""
    here = resources.files(__package__)
    texts = {
        place.name.removesuffix(_SUFFIX): place.read_text("utf-8")
        for place in here.iterdir()
        if place.name.endswith(_SUFFIX)
    }
    return {name: dialect_of(texts[name], name, name) for name in sorted(texts)}


def dialect_of(text: str, where: str, name: str) -> DialectFile:
    """Read the text of a file called `where`; `name` if it has none of its own."""
    return dialect_in(parsed(text, where), where, name)


def dialect_in(table: object, where: str, name: str, prefix: str = "") -> DialectFile:
    """Read a table that stands at `prefix` in a file; raises `DeclarationRefused`."""
    file = converted(table, DialectFile, where, prefix)
    for key, why in _unsound(file):
        raise DeclarationRefused(where, f"{prefix}.{key}".removeprefix("."), why)
    return msgspec.structs.replace(file, name=file.name or name)


def _unsound(file: DialectFile) -> Iterator[tuple[str, str]]:
    """List what cannot be meant."""
    for key, places in _paths(file):
        yield from ((key, why) for why in _astray(places))
    steps = file.grammar.steps if file.grammar else ()
    for index, step in enumerate(steps):
        if len(choices_of(step)) != 1:
            yield f"grammar.steps[{index}]", "one of one, maybe, some, many is due"
    if file.grammar is not None and not steps:
        yield "grammar.steps", "a step is due"
    if file.payload == "text" and file.event.path:
        yield "event.path", "text has no paths: events are named by the SSE field alone"


def _astray(places: Places) -> Iterator[str]:
    """Say of paths why they are none."""
    held = (places,) if isinstance(places, str) else places
    if not held:
        yield "a path is due, and the list is empty"
    for path in held:
        why = path_fault(path)
        if why:
            yield why
        elif ANY_DEPTH in path_of(path):
            yield f"{path!r}: '{ANY_DEPTH}' is for rules; a dialect's path names every step"


def _paths(file: DialectFile) -> Iterator[tuple[str, Places]]:
    if file.event.path is not None:
        yield "event.path", file.event.path
    for table in ("text", "reasoning"):
        for name, place in getattr(file, table).items():
            yield f"{table}.{name}", place.path if isinstance(place, TextPlace) else place
    yield "errors.code", file.errors.code
    yield from _tool_paths(file.tools) if file.tools else ()
    for name, places in file.parts.items():
        yield f"parts.{name}", places
    for name, paths in file.ignore.items():
        yield f"ignore.{name}", paths
    for name, kinds in file.required.items():
        for path in kinds:
            yield f"required.{name}", path


def _tool_paths(tools: Tools) -> Iterator[tuple[str, str]]:
    if tools.at:
        yield "tools.at", tools.at
    for name in ("index", "id", "name", "arguments"):
        yield f"tools.{name}", getattr(tools, name)
