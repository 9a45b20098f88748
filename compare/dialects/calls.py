"""Calls: the pieces of tool calls put together, each call one event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.wire.paths import look, path_of, take

if TYPE_CHECKING:
    from contract.wire.dialect import ToolPaths
    from contract.wire.paths import Path

JSON = dict[str, Any]
TOOL_CALL = "tool_call"
"""The name of a call's event."""


class Calls:
    """The tool calls of one stream, as they grow; a call stands where its first piece stood."""

    def __init__(self, places: ToolPaths) -> None:
        self._at = path_of(places.at)
        self._index = path_of(places.index)
        self._id = path_of(places.id)
        self._name = path_of(places.name)
        self._arguments = path_of(places.arguments)
        self._open: dict[str, JSON] = {}
        self._pieces: list[tuple[JSON, list[str]]] = []

    def feed(self, value: JSON) -> tuple[list[JSON], bool]:
        """Take the pieces out of a payload; give the calls they begin, and whether there were any.

        A call fills as pieces arrive; it is whole after `finish`.
        """
        if self._at:
            pieces = [piece for piece in take(value, self._at) if isinstance(piece, dict)]
            begun = [self._whole(piece) for piece in pieces]
        else:
            pieces = [value] if self._is_piece(value) else []
            begun = [self._own(value) for _ in pieces]
        return [call for call in begun if call is not None], bool(pieces)

    def _is_piece(self, value: JSON) -> bool:
        return any(_has(value, path) for path in (self._id, self._name, self._arguments))

    def _whole(self, piece: JSON) -> JSON | None:
        """Take in a piece that is nothing else: what it holds besides belongs to the call."""
        index = _first(take(piece, self._index))
        call, new = self._call(index, piece)
        for key, held in piece.items():
            call.setdefault(key, held)
        return call if new else None

    def _own(self, value: JSON) -> JSON | None:
        """Take in a piece that shares the payload of an event."""
        call, new = self._call(_first(list(look(value, self._index))), value)
        return call if new else None

    def _call(self, index: Any, piece: JSON) -> tuple[JSON, bool]:
        known = _first(take(piece, self._id, _is_text))
        name = _first(take(piece, self._name, _is_text))
        call = self._open.get(str(index))
        # Some providers repeat the id with every piece; another one is another call.
        new = call is None or (bool(known) and call.get("id") not in {None, known})
        new = new or (index is None and bool(name))
        if call is None or new:
            call = {}
            self._open[str(index)] = call
            self._pieces.append((call, []))
        _keep(call, {"index": index, "id": known, "name": name})
        self._argue(call, take(piece, self._arguments))
        return call, new

    def _argue(self, call: JSON, arguments: list[Any]) -> None:
        written = next(texts for made, texts in self._pieces if made is call)
        for piece in arguments:
            if isinstance(piece, str):
                written.append(piece)
            elif piece is not None:
                call["arguments"] = piece

    def finish(self) -> None:
        """Read the arguments that arrived in pieces; what is no JSON stays text."""
        for call, texts in self._pieces:
            if texts:
                call["arguments"] = _read("".join(texts))


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _keep(call: JSON, found: JSON) -> None:
    for key, held in found.items():
        if held is not None and held != "":
            call.setdefault(key, held)


def _has(value: JSON, path: Path) -> bool:
    return any(isinstance(found, str) for found in look(value, path))


def _first(found: list[Any]) -> Any:
    return found[0] if found else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
