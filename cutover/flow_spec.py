"""A flow whose events are structs, as data, and the grammar of their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from cutover.errors import Completed, Failed, GrammarViolated, Refused
from cutover.flow import (
    ClientRequest,
    Event,
    Frame,
    Framing,
    Operation,
    Pausing,
    Request,
    ResponseHead,
    Texts,
)
from cutover.records import RecordDamaged
from cutover.wire.splitters import events


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
class Step:
    """One place in a stream: any of `names`, at least `least` times, at most `most` (None: any)."""

    names: frozenset[str]
    least: int = 1
    most: int | None = 1

    def takes(self, count: int) -> bool:
        """Whether another event may stand here behind `count`."""
        return self.most is None or count < self.most


def one(*names: str) -> Step:
    """Exactly one event, of one of these names."""
    return Step(frozenset(names))


def maybe(*names: str) -> Step:
    """At most one event of these names."""
    return Step(frozenset(names), 0)


def many(*names: str) -> Step:
    """Any number of events of these names, none included."""
    return Step(frozenset(names), 0, None)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The allowed order of events."""

    steps: tuple[Step, ...]

    @property
    def terminal(self) -> frozenset[str]:
        """Events that end a stream."""
        return self.steps[-1].names


class GrammarCheck:
    """Walks along a grammar, event by event."""

    def __init__(self, grammar: Grammar) -> None:
        self._steps, self._position, self._count = grammar.steps, 0, 0

    def event(self, name: str) -> None:
        """Accept one event; raises `GrammarViolated` when it may not stand here."""
        for position, step, count in self._within_reach():
            if name in step.names and step.takes(count):
                self._position, self._count = position, count + 1
                return
        raise GrammarViolated(name, self.expected)

    @property
    def expected(self) -> tuple[str, ...]:
        """What may come next; empty when the stream is complete."""
        reach = [step.names for _, step, count in self._within_reach() if step.takes(count)]
        return tuple(name for names in reach for name in sorted(names))

    @property
    def complete(self) -> bool:
        """Whether the stream may end here."""
        *_, (position, step, count) = self._within_reach()
        return position == len(self._steps) - 1 and count >= step.least

    def _within_reach(self) -> Iterator[tuple[int, Step, int]]:
        """Yield the steps where the next event may stand, and how many stand there already."""
        count = self._count
        for position, step in enumerate(self._steps[self._position :], self._position):
            yield position, step, count
            if count < step.least:
                return
            count = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A field that holds a piece of what is said on `channel`, or the `total` said so far."""

    channel: str = "text"
    growth: Literal["delta", "total"] = "delta"


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as router and comparison see it; stacks implement it.

    `requests` are structs by path; the first path is the flow's own. `events` is a union of tagged
    structs. `named`: the tag is the frame's `event:` line and not in its data. `texts` says per
    event which fields (dotted paths) hold text; `pieces` are the events that may be nothing but
    text, whose number and cuts do not count. `failing(options, code)` returns the events of a
    stream that failed from its beginning, in the order of the grammar.
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
    failing: Callable[[Any, str], Sequence[Event]]
    route_keys: Mapping[str, str]
    named: bool = False
    pausing: Pausing | None = None
    operations: tuple[Operation, ...] = ()
    body_limits: Mapping[str, int] = field(default_factory=dict)
    reported: Callable[[Event], Failed | None] = lambda _: None

    @property
    def routes(self) -> Mapping[str, Sequence[str]]:
        """Methods by path."""
        resume = [self.pausing.resume] if self.pausing else []
        return dict.fromkeys((*self.requests, *resume), ("POST",))

    def body(self, asked: ClientRequest) -> Any:
        """Return the struct in a body; raises `Refused` 400 for what is no JSON, 415, 422."""
        return decoded(asked, self.requests[asked.path])

    def stored(self, path: str, body: Any, options: Any) -> Request[Any, Any]:
        """Return a request that was stored, of its decoded JSON."""
        structs = msgspec.convert(body, self.requests[path]), msgspec.convert(options, self.options)
        return Request(*structs, path)

    def stored_frames(self, frames: Iterable[bytes]) -> Iterator[Frame]:
        """Yield the frames of a stored stream; raises `RecordDamaged` for what is no event."""
        framer = Framer(self)
        tag = (get_args(self.events) or (self.events,))[0].__struct_config__.tag_field
        for one in (event for raw in frames for event in events(raw)):
            try:
                data = msgspec.json.decode(one.data)
                named = {**data, tag: one.event} if self.named else data
                event = msgspec.convert(named, self.events)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
                reason = f"a frame of flow {self.name!r} is none of its events: {error}"
                raise RecordDamaged(reason) from error
            yield framer.frame(event)

    def failure(self, options: Any, code: str, last: str | None) -> Sequence[Event]:
        """Return the events that are due behind one named `last` in a stream that failed."""
        places = {name: at for at, step in enumerate(self.grammar.steps) for name in step.names}
        reached = places.get(last or "", -1)
        due = self.failing(options, code)
        return [one for one in due if places[str(one.__struct_config__.tag)] > reached]

    def framer(self, after: Framing | None = None) -> Framer:  # noqa: ARG002 - of this flow
        """Return what reads a run's events."""
        return Framer(self)

    @property
    def path(self) -> str:
        """The flow's own path."""
        return next(iter(self.requests))

    @property
    def key_names(self) -> Collection[str]:
        """Names of the route keys."""
        return self.route_keys

    def key(self, body: Any, name: str = "") -> str:
        """Return the value of a route key in a decoded body, "" where it has none usable."""
        path = self.route_keys.get(name) or next(iter(self.route_keys.values()), "")
        value: Any = msgspec.to_builtins(body) if isinstance(body, msgspec.Struct) else body
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else ""


def decoded(asked: ClientRequest, kind: Any) -> Any:
    """Return the struct in a request's body.

    Raises `Refused` 415 for what is not declared as JSON, which a page of another origin could send
    without asking; 400 for what is no JSON; 422 for what is not as `kind` says.
    """
    media = asked.header("content-type").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refused(415, "not_json", "send the body as application/json")
    try:
        return msgspec.json.decode(asked.content, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, "bad_request", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "no_json", "the body is no JSON") from error


def wire(event: Event, *, named: bool) -> bytes:
    """Encode an event as an SSE frame: compact UTF-8 JSON, keys in the order of the struct."""
    config = event.__struct_config__
    if not named:
        return b"data: " + _wire.encode(event) + b"\n\n"
    data = msgspec.to_builtins(event, enc_hook=plain)
    data.pop(config.tag_field, None)
    return b"event: %b\ndata: %b\n\n" % (str(config.tag).encode(), msgspec.json.encode(data))


class Framer:
    """Makes frames of one stream's events: a total becomes what it adds to the texts so far.

    Raises `GrammarViolated` for a total that does not begin with what was said before.
    """

    verbatim = False
    comments = True
    head = ResponseHead()

    def __init__(self, flow: FlowSpec) -> None:
        self._flow = flow
        self._check = GrammarCheck(flow.grammar)
        self.texts = Texts()

    def read(self, event: Event) -> tuple[Frame]:
        """Return the frame of a stack's next event; raises `GrammarViolated` out of order."""
        frame = self.frame(event)
        self._check.event(frame.name)
        return (frame,)

    def frame(self, event: Event) -> Frame:
        """Return an event's frame."""
        name = str(event.__struct_config__.tag)
        raw = wire(event, named=self._flow.named)
        data = msgspec.to_builtins(event, enc_hook=plain)
        texts = []
        for text, holder, last in self._texts_in(name, data):
            value = holder.pop(last)
            if text.growth == "total":
                so_far = self.texts.get(text.channel, "")
                if not value.startswith(so_far):
                    raise GrammarViolated(name, (f"{name} whose {last} has not shrunk",))
                value = value[len(so_far) :]
            if value:
                texts.append((text.channel, value))
                self.texts.add(text.channel, value)
        tag = event.__struct_config__.tag_field
        pure = name in self._flow.pieces and not _substance(data, tag)
        rest = b"" if pure else _json.encode(data)
        ends = name in self._flow.grammar.terminal
        failed = self._flow.reported(event)
        return Frame(
            raw, name, tuple(texts), rest, "terminal" if ends else "content", failed, event
        )

    @property
    def ending(self) -> Completed | Failed:
        """How the stream has ended."""
        return Completed() if self._check.complete else Failed("truncated")

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode a frame's event without the first `skip` characters of each channel's new text.

        Totals are left whole: a client that has their beginning has lost nothing.
        """
        event: Event = frame.source
        data = msgspec.to_builtins(event, enc_hook=plain)
        for text, holder, last in self._texts_in(frame.name, data):
            if text.growth == "delta":
                holder[last] = holder[last][skip.get(text.channel, 0) :]
        return wire(msgspec.convert(data, type(event)), named=self._flow.named)

    def _texts_in(self, name: str, data: Any) -> Iterator[tuple[Text, dict[str, Any], str]]:
        """Yield each text of an event, with what holds it and its key there."""
        for path, text in self._flow.texts.get(name, {}).items():
            *parents, last = path.split(".")
            holder = data
            for step in parents:
                holder = holder.get(step) if isinstance(holder, dict) else None
            if isinstance(holder, dict) and isinstance(holder.get(last), str):
                yield text, holder, last


def _substance(data: dict[str, Any], tag: str | None) -> bool:
    """Whether anything but the tag and emptied holders is left of an event."""
    return any(
        _substance(value, None) if isinstance(value, dict) else True
        for key, value in data.items()
        if key != tag
    )
