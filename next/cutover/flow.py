"""What a flow is: its request, its events, and how an event is a frame on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import msgspec

from cutover.errors import Failed, GrammarViolated
from cutover.grammar import Grammar

Event = msgspec.Struct
"""An event of a stream: a frozen struct of its flow's union, whose tag is the event's name."""

B = TypeVar("B")
P = TypeVar("P")


def plain(value: Any) -> Any:
    """Return an instance of a subclass of str, int or float as its base, for msgspec.

    LangChain's `message.text` is one. Raises `TypeError` for any other object.
    """
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    message = f"{type(value).__name__} is no JSON"
    raise TypeError(message)


_wire = msgspec.json.Encoder(enc_hook=plain)
_json = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Request(Generic[B, P]):
    """A client's request: `body` and `options` are structs of its flow, `path` one of its paths."""

    body: B
    options: P
    path: str = ""


Stack = Callable[[Request[Any, Any]], AsyncIterator[Event]]
"""A stack's implementation of one flow; it raises `Refused` before its first event or never."""


@dataclass(frozen=True, slots=True)
class Text:
    """A field that holds a piece of what is said on `channel`, or the `total` said so far."""

    channel: str = "text"
    growth: Literal["delta", "total"] = "delta"


class Frame(msgspec.Struct, frozen=True):
    """One event as the bytes that clients get, and what is compared of it.

    `texts` are pairs of a channel and the text that this frame adds to it. `rest` is the event
    without its texts, as canonical JSON; b"" where nothing else stands in it (a pure piece).
    """

    raw: bytes
    name: str
    texts: tuple[tuple[str, str], ...] = ()
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class Operation:
    """A further HTTP operation of a flow that does not stream.

    `perform` gets the arguments in braces of `path` and the decoded body (None where there is
    none), and returns the answer's body, None for 204. It raises `Refused`.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    perform: str
    body: Any = None


@dataclass(frozen=True, slots=True)
class Pausing:
    """How a flow pauses: `questions` are the events that ask, `suspended` ends such a stream.

    `resume` is the path whose request continues a paused exchange, `resume_request` its struct;
    `question_of` reads the question's id in that request. `answer_of` reads the answer, where it
    comes with that request; None where another operation stored it before.
    """

    questions: frozenset[str]
    suspended: Callable[[Any], Sequence[Event]]
    resume: str
    resume_request: Any
    question_of: Callable[[Any], str]
    answer_of: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as router and comparison see it; stacks implement it.

    `requests` are structs by path; the first path is the flow's own. `events` is a union of tagged
    structs. `named`: the tag is the frame's `event:` line and not in its data. `texts` says per
    event which fields (dotted paths) hold text; `pieces` are the events that may be nothing but
    text, whose number and cuts do not count. `failure(options, code, last)` returns the events
    that honestly end a stream whose last event was named `last` (None: there was none).
    `reported` returns the failure that an event of a stack itself tells the client of; the stream
    that such a terminal event ends is whole, and the exchange has failed all the same.
    `route_keys` are dotted paths into the body by name, the first is the default.
    `body_limits` are bytes by path, where a body may be larger than others.
    """

    name: str
    requests: Mapping[str, Any]
    options: type[msgspec.Struct]
    events: Any
    grammar: Grammar
    texts: Mapping[str, Mapping[str, Text]]
    pieces: frozenset[str]
    failure: Callable[[Any, str, str | None], Sequence[Event]]
    route_keys: Mapping[str, str]
    named: bool = False
    pausing: Pausing | None = None
    operations: tuple[Operation, ...] = ()
    body_limits: Mapping[str, int] = field(default_factory=dict)
    reported: Callable[[Event], Failed | None] = lambda _: None

    @property
    def path(self) -> str:
        """The flow's own path."""
        return next(iter(self.requests))

    def key(self, body: Any, name: str = "") -> str:
        """Return the value of a route key in a decoded body, "" where it has none usable."""
        path = self.route_keys.get(name) or next(iter(self.route_keys.values()), "")
        value: Any = msgspec.to_builtins(body) if isinstance(body, msgspec.Struct) else body
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else ""


def wire(event: Event, *, named: bool) -> bytes:
    """Encode an event as an SSE frame: compact UTF-8 JSON, keys in the order of the struct."""
    config = event.__struct_config__
    if not named:
        return b"data: " + _wire.encode(event) + b"\n\n"
    data = msgspec.to_builtins(event, enc_hook=plain)
    data.pop(config.tag_field, None)
    return b"event: %b\ndata: %b\n\n" % (str(config.tag).encode(), msgspec.json.encode(data))


class Texts(Mapping[str, str]):
    """The text of each channel, which grows piece by piece and is joined where it is read."""

    def __init__(self, texts: Mapping[str, str] = MappingProxyType({})) -> None:
        self._pieces = {channel: [text] for channel, text in texts.items()}
        self.lengths = {channel: len(text) for channel, text in texts.items()}

    def add(self, channel: str, piece: str) -> None:
        """Add to the text of a channel."""
        self._pieces.setdefault(channel, []).append(piece)
        self.lengths[channel] = self.lengths.get(channel, 0) + len(piece)

    def __getitem__(self, channel: str) -> str:
        pieces = self._pieces[channel]
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


class Framer:
    """Makes frames of one stream's events: a total becomes what it adds to the texts so far.

    Raises `GrammarViolated` for a total that does not begin with what was said before.
    """

    def __init__(self, flow: FlowSpec) -> None:
        self._flow = flow
        self.texts = Texts()

    def frame(self, event: Event) -> Frame:
        """Return an event's frame."""
        name = str(event.__struct_config__.tag)
        raw = wire(event, named=self._flow.named)
        data = msgspec.to_builtins(event, enc_hook=plain)
        texts = []
        for path, text in self._flow.texts.get(name, {}).items():
            value = _take(data, path)
            if value is None:
                continue
            if text.growth == "total":
                so_far = self.texts.get(text.channel, "")
                if not value.startswith(so_far):
                    raise GrammarViolated(name, (f"{name} whose {path} has not shrunk",))
                value = value[len(so_far) :]
            if value:
                texts.append((text.channel, value))
                self.texts.add(text.channel, value)
        tag = event.__struct_config__.tag_field
        pure = name in self._flow.pieces and not _substance(data, tag)
        return Frame(raw, name, tuple(texts), b"" if pure else _json.encode(data))

    def trimmed(self, event: Event, skip: Mapping[str, int]) -> bytes:
        """Encode an event without the first `skip` characters of each channel's new text.

        Totals are left whole: a client that has their beginning has lost nothing.
        """
        name = str(event.__struct_config__.tag)
        data = msgspec.to_builtins(event, enc_hook=plain)
        for path, text in self._flow.texts.get(name, {}).items():
            if text.growth == "delta" and (count := skip.get(text.channel, 0)):
                *parents, last = path.split(".")
                holder: Any = data
                for step in parents:
                    holder = holder[step]
                if isinstance(holder.get(last), str):
                    holder[last] = holder[last][count:]
        return wire(msgspec.convert(data, type(event)), named=self._flow.named)


def _take(data: dict[str, Any], path: str) -> str | None:
    """Remove the text at a dotted path of `data` and return it; None where there is none."""
    *parents, last = path.split(".")
    holder: Any = data
    for step in parents:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(holder.get(last), str):
        return None
    value: str = holder.pop(last)
    return value


def _substance(data: dict[str, Any], tag: str | None) -> bool:
    """Whether anything but the tag and emptied holders is left of an event."""
    return any(
        _substance(value, None) if isinstance(value, dict) else True
        for key, value in data.items()
        if key != tag
    )
