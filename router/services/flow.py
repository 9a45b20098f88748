"""A declared flow: which requests it takes, what they are split by, how its streams are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

import msgspec

from cutover.chat_form import NotJson, decode, encode
from cutover.errors import Refused
from cutover.flow import ClientRequest, Event, Frame, Framing, Operation, Pausing, Request
from cutover.records import Binary
from cutover.wire import MOST_BLOCK_BYTES, Dialect, Piece, ServiceFraming

PLACES = ("body", "query", "header", "path")
"""Where a key may stand in a request: `body.user.id`, `query.user`, `header.x-user`, `path.id`."""
BODY_BYTES = 8 << 20
MOST_FIELDS = 1_000
"""Fields of a form in which keys are looked for."""


class ServiceRequest(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A client's request, as a service is sent it; credentials are none of it.

    `target` is path and query, `params` are the arguments in the path, `named` the headers that
    keys are read from.
    """

    method: str
    target: str
    media: str = ""
    content: str | Binary = ""
    params: dict[str, str] = {}
    named: dict[str, str] = {}

    @property
    def data(self) -> bytes:
        """The body, as it came."""
        return self.content.b64 if isinstance(self.content, Binary) else self.content.encode()

    @cached_property
    def decoded(self) -> Any:
        """The body's JSON, or the fields of a form; None where it is neither."""
        try:
            if self.media.startswith("application/x-www-form-urlencoded"):
                fields = parse_qs(self.data.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
                return {name: values[-1] for name, values in fields.items()}
            return decode(self.data)
        except (ValueError, NotJson):
            return None


@dataclass(frozen=True, slots=True)
class ServiceFlow:
    """A flow of services; `keys` are places by name, such as `{"user": "body.user.id"}`."""

    name: str
    routes: Mapping[str, Sequence[str]]
    dialect: Dialect
    keys: Mapping[str, str] = field(default_factory=dict)
    event_bytes: int = MOST_BLOCK_BYTES
    """Bytes of one event of an answer."""
    pausing: Pausing | None = None
    operations: Sequence[Operation] = ()

    @property
    def body_limits(self) -> Mapping[str, int]:
        """Bytes by path."""
        return dict.fromkeys(self.routes, BODY_BYTES)

    @property
    def key_names(self) -> Collection[str]:
        """Names of the route keys."""
        return self.keys

    def body(self, asked: ClientRequest) -> ServiceRequest:
        """Return what of a request the service is sent, besides headers; any body passes.

        Raises `Refused` 400 for a path that may lead elsewhere than the one that is declared.
        """
        parts = "/".join(asked.params.values()).replace("\\", "/").split("/")
        if not {".", ".."}.isdisjoint(parts):
            raise Refused(400, "bad_path", "an argument in the path has a . or .. for a part")
        try:
            content: str | Binary = asked.content.decode()
        except UnicodeDecodeError:
            content = Binary(asked.content)
        named = (place.partition(".")[2] for place in self.keys.values() if place[:1] == "h")
        return ServiceRequest(
            asked.method,
            asked.target,
            asked.header("content-type"),
            content,
            dict(asked.params),
            {name: value for name in named if (value := asked.header(name))},
        )

    def stored(self, path: str, body: Any, options: Any) -> Request[Any, Any]:  # noqa: ARG002
        """Return a request that was stored, with what is known of its headers."""
        sent = msgspec.convert(body, ServiceRequest)
        headers = {"content-type": sent.media} if sent.media else {}
        return Request(sent, None, path, tuple({**headers, **sent.named}.items()))

    def stored_frames(self, frames: Iterable[bytes]) -> Iterator[Frame]:
        """Yield the frames of a stored stream; its head has no bytes, and is left out."""
        framing = self.framer()
        return (frame for raw in frames if raw for frame in framing.read(Piece(raw)))

    def key(self, body: Any, name: str = "") -> str:
        """Return the value of a route key: any JSON but null.

        Values that are equal are one key; so are 7, 7.0 and "7".
        """
        place = self.keys.get(name) or next(iter(self.keys.values()), "")
        kind, _, path = place.partition(".")
        if kind == "body":
            return _text(_at(body.decoded, path))
        if kind == "query":
            return str(parse_qs(body.target.partition("?")[2]).get(path, [""])[-1])
        values: Mapping[str, str] = body.named if kind == "header" else body.params
        return str(values.get(path, ""))

    def framer(self, after: Framing | None = None) -> ServiceFraming:
        """Return what reads a run's answer; its ids are those that the client knows."""
        return ServiceFraming(self.dialect, after, self.event_bytes)

    def failure(self, _options: Any, code: str, _last: str | None) -> Sequence[Event]:
        """Return the events that end a stream honestly; none where the dialect has none."""
        return [Piece(one.replace("{code}", code).encode()) for one in self.dialect.failure.says]


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(value, list) and step.lstrip("-").isdigit():
            value = next(iter(value[int(step) :]), None)
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return encode(value).decode()
