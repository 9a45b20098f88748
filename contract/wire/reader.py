"""What events of a declared wire are called, and what a router has to see in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from contract.wire.dialect import EVERY, DialectFile, EventNames, TextPaths
from contract.wire.paths import Path, found_at, look, path_of, paths_of

_encode: Final = msgspec.json.Encoder().encode

Track = tuple[str, tuple[str | int, ...], bool]
"""A piece of a text: which text it belongs to, where it stands, whether it holds all before it."""


class Names:
    """Names the events of one wire."""

    def __init__(self, naming: EventNames) -> None:
        self._naming = naming
        self.path: Path = path_of(naming.path or "")

    def of(self, sse_name: str, value: Any) -> str:
        """Name an event by its SSE name and its payload."""
        name = sse_name
        found = next(iter(look(value, self.path)), None) if self.path else None
        if found is not None:
            name = found if isinstance(found, str) else _encode(found).decode()
        return self._naming.names.get(name, name) or self._naming.default


class Notable:
    """Parts that end a stream or say that it failed, in whatever event they stand."""

    def __init__(self, file: DialectFile) -> None:
        wanted = {*file.terminal, *file.errors.events}
        self.paths = {name: paths_of(paths) for name, paths in file.parts.items() if name in wanted}

    def of(self, value: Any) -> str | None:
        """Name the first that stands in a payload; null is none."""
        parts = (
            part
            for part, paths in self.paths.items()
            if any(held is not None for path in paths for held in look(value, path))
        )
        return next(parts, None)


def calls_in(file: DialectFile, value: Any) -> bool:
    """Whether a piece of a tool call stands in a payload: its name, or some of its arguments."""
    tools = file.tools
    if tools is None:
        return False
    paths = [path_of(f"{tools.at}.{place}") for place in (tools.name, tools.arguments)]
    return any(held not in (None, "") for path in paths for held in look(value, path))


def texts_in(file: DialectFile, name: str, value: Any) -> Iterator[Track]:
    """Say where in an event of this name pieces of text stand: the answer, the reasoning, calls."""
    for track, table in (("text", file.text), ("reasoning", file.reasoning)):
        place = table.get(name, table.get(EVERY))
        if place is None:
            continue
        paths = place.path if isinstance(place, TextPaths) else place
        growth = place.growth if isinstance(place, TextPaths) else file.growth
        for path in paths_of(paths):
            for at in found_at(value, path):
                yield track, at, growth == "cumulative"
    if file.tools is not None:
        for at in found_at(value, path_of(f"{file.tools.at}.{file.tools.arguments}")):
            yield "arguments", at, False


def code_in(value: Any, paths: Iterable[Path]) -> str:
    """Give the code of a failure, the first at one of some paths; "" where none is."""
    found = (item for path in paths for item in look(value, path))
    return str(next((item for item in found if isinstance(item, str | int)), ""))
