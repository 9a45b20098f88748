"""Messages: what a load run asks, from a JSONL file, with ids nobody has used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import CutoverError
from loadtests.rows import ILLEGIBLE

if TYPE_CHECKING:
    from contract.flow import FlowSpec

ID_LENGTH = 128


class MessagesRefused(CutoverError):
    """A messages file cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use {str(path)!r} as messages: {reason}")


@dataclass(frozen=True, slots=True)
class Message:
    """One request body, the id it is known by, and what a router routes it by."""

    message_id: str
    route_key: str
    body: bytes


class Messages:
    """Bodies in the order of the file, again and again."""

    def __init__(self, spec: FlowSpec, bodies: list[dict[str, Any]], route_key: str = "") -> None:
        self._bodies = bodies
        self._own = next(iter(spec.route_keys.values()))
        self._routed = spec.route_keys.get(route_key, self._own)
        # A conversation per request: otherwise histories grow during the run and late requests are
        # not like early ones. People stay who they are.
        self._fresh = [
            field for key, field in spec.route_keys.items() if key in ("message_id", "session_id")
        ]

    def __len__(self) -> int:
        return len(self._bodies)

    def fresh(self, index: int, tag: str) -> Message:
        """Give message `index` (modulo their number) under ids marked with `tag`.

        The tag must be new for every request; body ids are the file's own, then the tag.
        """
        body = dict(self._bodies[index % len(self._bodies)])
        for field in self._fresh:
            if field in body:
                body[field] = f"{str(body[field])[: ID_LENGTH - 1 - len(tag)]}-{tag}"
        own = str(body[self._own])
        return Message(own, str(body.get(self._routed) or own), msgspec.json.encode(body))


def read_messages(spec: FlowSpec, path: Path, route_key: str = "") -> Messages:
    """Read a messages file; raises `MessagesRefused` on a missing, empty or bad one.

    `route_key` is what the router routes the flow by; "" for the flow's default.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise MessagesRefused(path, error.strerror or "it cannot be read") from error
    bodies = [_body(spec, path, number, line) for number, line in enumerate(lines, 1) if line]
    if not bodies:
        raise MessagesRefused(path, "it holds no message")
    return Messages(spec, bodies, route_key)


def _body(spec: FlowSpec, path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Read one body; fields that are no part of the flow's request are notes, and stay here."""
    try:
        msgspec.json.decode(line, type=spec.request)
        body = msgspec.json.decode(line, type=dict[str, Any])
    except ILLEGIBLE as error:
        raise MessagesRefused(path, f"line {number}: {error}") from error
    known = {field.encode_name for field in msgspec.structs.fields(spec.request)}
    return {name: value for name, value in body.items() if name in known}
