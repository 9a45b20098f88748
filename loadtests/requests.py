"""Requests of a load run: flows, messages under ids that were never used, and their targets.

Generators import this and no statistics: those would double their start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from contract.declarations import not_a_file
from contract.errors import CutoverError
from contract.flow import SESSION, FlowSpec, endpoint_path
from contract.flows import SPECS
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.qa_header import QA_HEADER, sign
from contract.wire import NO_JSON, value_at

FORCED_SECONDS = 300
"""How long the QA header of a request is valid."""
ID_LENGTH = 128

HEADERS_VARIABLE = "CUTOVER_LOAD_HEADERS"
QA_KEY_VARIABLE = "CUTOVER_LOAD_QA_KEY"
DECLARED_VARIABLE = "CUTOVER_LOAD_DECLARED"
MESSAGES_VARIABLE = "CUTOVER_LOAD_MESSAGES"
ROWS_VARIABLE = "CUTOVER_LOAD_ROWS"
_OPENED = "\0"
"""In place of the name of a conversation that is to be opened."""


class MessageFileRefused(CutoverError):
    """A messages file cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use {str(path)!r} as messages: {reason}")


class ConversationsUnnamed(CutoverError):
    """A message has no route key before it is sent: its QA header cannot be signed."""

    def __init__(self, flow: str) -> None:
        super().__init__(
            f"a message to the flow {flow!r} opens a conversation, and the QA header is signed for "
            "what it is routed by: route by another key (--route-key), or name the conversation in "
            "--messages"
        )


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """One request: its id, its route key, its path and its body, and the flow's main path.

    `route_key` is None where it is unknown before the answer: a conversation is to be opened.
    """

    message_id: str
    route_key: str | None
    path: str
    body: bytes
    flow_path: str


class MessageCycle:
    """Bodies and their paths in the order of the file, again and again."""

    def __init__(
        self, spec: FlowSpec, bodies: Sequence[tuple[str, dict[str, Any]]], route_key: str = ""
    ) -> None:
        self._spec = spec
        self._bodies = bodies
        self._routed = route_key
        fields = {key: field.split(".") for key, field in spec.route_keys.items()}
        self._own = next(iter(fields.values()), [])
        # A conversation per request: otherwise histories grow during the run and late requests are
        # not like early ones. Users keep their ids.
        self._fresh = [field for key, field in fields.items() if key in ("message_id", SESSION)]

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def routable(self) -> bool:
        """Whether the route key of every message is known."""
        return all(self.fresh(index, "").route_key is not None for index in range(len(self)))

    def fresh(self, index: int, tag: str) -> LoadMessage:
        """Return message `index` (modulo their number) under ids marked with `tag`.

        The tag must be new for every request; body ids are the file's own, then the tag. An id
        that is no text stays as it is, and a message without one is known by the tag.
        """
        path, template = self._bodies[index % len(self._bodies)]
        body = deepcopy(template)
        for field in self._fresh:
            _mark(body, field, tag)
        own = value_at(body, self._own) if self._own else None
        known = str(own) if isinstance(own, str | int) else tag
        key, data = self._key(path, body), msgspec.json.encode(body)
        return LoadMessage(known, key, path, data, self._spec.path)

    def _key(self, path: str, body: dict[str, Any]) -> str | None:
        spec = self._spec
        request = msgspec.convert(body, spec.requests[path])
        key = spec.route_key(request, self._routed, _OPENED if spec.opens_sessions else "")
        return None if key == _OPENED else key


def _mark(body: dict[str, Any], field: Sequence[str], tag: str) -> None:
    """Make an id in a body new, where it is there and text."""
    *above, last = field
    holder = value_at(body, above)
    own = holder.get(last) if isinstance(holder, dict) else None
    if isinstance(holder, dict) and isinstance(own, str):
        holder[last] = f"{own[: ID_LENGTH - 1 - len(tag)]}-{tag}"


def read_messages(spec: FlowSpec, path: Path, route_key: str = "") -> MessageCycle:
    """Read a messages file; raises `MessageFileRefused` on a missing, empty or bad one.

    `route_key` is what the router routes the flow by; "" for the flow's default.
    """
    try:
        if kind := not_a_file(path.stat().st_mode):
            raise MessageFileRefused(path, kind)
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise MessageFileRefused(path, error.strerror or "it cannot be read") from error
    bodies = [_body(spec, path, number, line) for number, line in enumerate(lines, 1) if line]
    if not bodies:
        raise MessageFileRefused(path, "it holds no message")
    return MessageCycle(spec, bodies, route_key)


def _body(spec: FlowSpec, path: Path, number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    """Read one body and its path: the first of the flow's paths that takes it.

    Fields that are no part of the request there are notes, and stay here.
    """
    trouble: Exception | None = None
    for where, wanted in spec.requests.items():
        try:
            msgspec.json.decode(line, type=wanted)
            body = msgspec.json.decode(line, type=dict[str, Any])
        except NO_JSON as error:
            trouble = trouble or error
            continue
        return where, body if wanted == dict[str, Any] else _without_notes(body, wanted)
    raise MessageFileRefused(path, f"line {number}: {trouble}") from trouble


def _without_notes(body: dict[str, Any], wanted: type[msgspec.Struct]) -> dict[str, Any]:
    known = {field.encode_name for field in msgspec.structs.fields(wanted)}
    return {name: value for name, value in body.items() if name in known}


class TargetRefused(CutoverError):
    """An address or a header of a target cannot be used."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"cannot use {what!r} as a load target: {reason}")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One stack's address, as in `[stacks]`; `headers` (name, value) go with every request.

    With a `qa_key` every request carries a QA header that asks for this stack. Headers and key may
    be secrets: they are handed on by pipe or environment, never in an argument list, a row or a
    report.
    """

    stack: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    qa_key: str = ""

    def __post_init__(self) -> None:
        shown = self.url.rpartition("@")[2]
        try:
            parts = urlsplit(self.url)
            # Reading the port checks it.
            _ = parts.port
        except ValueError:  # its text may hold a piece of a password
            raise TargetRefused(shown, "its host or its port is none") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetRefused(shown, "it is not an http or https address")
        if parts.username or parts.password or parts.query:
            raise TargetRefused(parts.hostname, "put credentials into a header, not the address")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """TCP port."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    def request(self, message: LoadMessage, accepted: str = "text/event-stream") -> bytes:
        """Write a whole POST request; what is `accepted` goes into its head.

        One connection per request: each one pays for what a new client pays for, and no request
        dies of a connection the server closed while it was idle.
        """
        parts = urlsplit(self.url)
        forced = []
        if self.qa_key and message.route_key is not None:
            expires = int(time.time()) + FORCED_SECONDS
            value = sign(self.stack, expires, message.route_key, self.qa_key.encode())
            forced = [(QA_HEADER, value)]
        lines = [
            f"POST {endpoint_path(parts.path, message.flow_path, message.path)} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: close",
            f"Accept: {accepted}",
            "Content-Type: application/json",
            f"Content-Length: {len(message.body)}",
            *(f"{name}: {value}" for name, value in (*self.headers, *forced)),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + message.body


def parse_header(text: str) -> tuple[str, str]:
    """Read `name: value`; raises `TargetRefused` without showing the value."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise TargetRefused(name[:32], "a header is written as 'name: value'")
    if not value.isprintable() or not value.isascii():
        raise TargetRefused(name, "its value holds a character no header may hold")
    return name, value


class FlowUnknown(CutoverError):
    """No flow has that name."""

    def __init__(self, name: str) -> None:
        known = ", ".join(map(repr, SPECS))
        super().__init__(f"no flow {name!r}; there are {known}, and those a configuration declares")


def flow_named(name: str, declared: DeclaredFlow | None = None) -> FlowSpec:
    """Return a flow by its declaration, or by its name alone; raises `FlowUnknown`."""
    if declared is not None:
        return declared_spec(name, declared)
    try:
        return SPECS[name]
    except KeyError as error:
        raise FlowUnknown(name) from error
