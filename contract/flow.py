"""A flow: one callable of one shape, and what router and compare know of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

import msgspec

from contract.grammar import Grammar
from contract.human import Form, HumanAnswer, PendingQuestion
from contract.ports import Effects
from contract.records import RequestRecord
from contract.stores import Turn
from contract.wire import NO_JSON, Dialect, EventDecoder, WireEvent, frame_of
from contract.wire.paths import Path

Event = msgspec.Struct
"""An event of a stream: a frozen struct of its flow's union."""

SESSION = "session_id"
"""The route key whose field names the conversation a request belongs to, where a flow has one."""
USER = "user_id"
"""The route key whose field names the user."""
MAX_KEY_LENGTH = 512
"""Characters of a value that requests can be routed by."""

Body = msgspec.Struct | Mapping[str, Any]
"""A request's body: a struct, or the JSON object itself in declared flows."""

B = TypeVar("B", bound=Body)
P = TypeVar("P", bound=msgspec.Struct)
V = TypeVar("V")


def always_recorded(default: V) -> V:
    """Return the default of an option that each record states, also where it is the default.

    Records leave out other options at their defaults: a default that changes must be recorded.
    """
    # msgspec leaves out what equals a default, and not what a factory has made.
    option: V = msgspec.field(default_factory=lambda: default)
    return option


@dataclass(frozen=True, slots=True)
class Request(Generic[B, P]):
    """A client's body with the options of this deployment.

    `path` is one of the flow's further paths, "" for its own. `session` names the conversation
    that a request without a name begins, in flows that open conversations.
    """

    body: B
    options: P
    path: str = ""
    session: str = ""


Flow = Callable[[Request[Any, Any], Effects], AsyncIterator[Event]]
"""A flow: an async generator function; it raises `Refused` before its first event or never.

One of a stack of your own may yield what `FlowSpec.event_of` makes events of.
"""


class CallBreaker(Protocol):
    """Permits calls of something that may hang; `now` is in seconds of a monotonic clock."""

    def permit(self, now: float) -> Any | None:
        """Permit a call, or refuse it: None."""
        ...

    def record(
        self, permit: Any | None, result: Literal["success", "failure", "ignored"], now: float
    ) -> object:
        """Record how a permitted call ended."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedFlows:
    """What a stack's `opened(address, breaker)` yields: its flows, and how it forgets a session.

    A stack that stores something of its own beside the ports has such a hook beside its `FLOWS`;
    `breaker` lets it skip a store that hangs.
    """

    flows: Mapping[str, Flow]
    forget: Callable[[str], Awaitable[None]]


class SessionStore(Protocol):
    """Stored conversations, as operations beside the streams reach them."""

    async def questions(self, session_id: str) -> tuple[PendingQuestion, ...]:
        """Read the questions of a session that wait for an answer, or to be resumed."""
        ...

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Read every turn of a session, oldest first; none of an unknown one."""
        ...

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Remove a session: turns, memories learnt in it, pauses, checkpoints.

        False when nothing was stored. Raises `Refused` 409 while an exchange holds `lock`.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreEndpoint:
    """An operation over the stores alone: no stream, no stack.

    `perform` takes the arguments in braces of its path and returns the answer's body, None where
    there is none; it raises `Refused`.
    """

    method: Literal["GET", "DELETE"]
    path: str
    perform: Callable[[SessionStore, Mapping[str, str]], Awaitable[msgspec.Struct | None]]
    reply: type[msgspec.Struct] | None = None


@dataclass(frozen=True, slots=True)
class AnswerEndpoint:
    """Where the answer to a question is posted; the functions read it out of the body."""

    path: str
    request: type[msgspec.Struct]
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], HumanAnswer]


@dataclass(frozen=True, slots=True)
class ContinueEndpoint:
    """Where a paused exchange is resumed; `answer` reads the answer in the request, if one is."""

    path: str
    request: Any
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], HumanAnswer] | None = None


def _form(question: Any) -> Form:
    return msgspec.convert(question, Form)


@dataclass(frozen=True, slots=True)
class Pausing:
    """How a flow pauses: where its questions are answered, and where it goes on.

    Without `respond` an answer comes with the request to go on.

    `suspended(options, last)` returns the events that end a stream which waits for a human and
    whose last event was `last`. For code of others, which asks and is answered in JSON, `form`
    makes a form of what it asks, and `value` what it gets of an answer.
    """

    respond: AnswerEndpoint | None
    resume: ContinueEndpoint
    suspended: Callable[[Any, Event | None], Sequence[Event]]
    form: Callable[[Any], Form] = _form
    value: Callable[[HumanAnswer], Any] = msgspec.to_builtins


class PassedEvent(Event, frozen=True):
    """An event that is passed on without decoding it: its name, and its frame."""

    name: str
    frame: bytes = b""


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as router and compare see it.

    `failure(options, code, last)` returns the events that end a stream honestly whose last event
    was `last`. `route_keys` are dotted paths into the body; the first is the default.

    `extra_requests` are further paths that stream, each with its request; `body_limits` the paths
    whose bodies may have more bytes than others, and how many. `pausing` is None in flows that ask
    no human, `store_endpoints` are its operations that do not stream. For `grace_seconds` a flow
    may go on working after its terminal event; the locks it has released by then are free at once.
    A flow that `opens_sessions` receives the name of each: all turns are routed by it, the first
    one too. `events` is the union of structs; None in a declared flow, which is known by its
    dialect alone. `earlier_defaults` are values of options that are `always_recorded`, by name:
    those of a record of an earlier version, which does not state them. `example` is the JSON text
    of a request of a declared flow, "" where none is configured. `other_format` is the flow in the
    format of graph's service, where clients get another one: see `sent_by`.
    """

    name: str
    path: str
    request: Any
    options: type[msgspec.Struct]
    events: Any
    grammar: Grammar
    dialect: Dialect
    failure: Callable[[Any, str, Event | None], Sequence[Event]]
    encode: Callable[[Event], bytes]
    route_keys: Mapping[str, str]
    extra_requests: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    body_limits: Mapping[str, int] = field(default_factory=dict)
    pausing: Pausing | None = None
    store_endpoints: tuple[StoreEndpoint, ...] = ()
    grace_seconds: float = 0.0
    opens_sessions: bool = False
    earlier_defaults: Mapping[str, Any] = field(default_factory=dict)
    example: str = ""
    other_format: FlowSpec | None = None
    decoder: EventDecoder = field(init=False, repr=False, compare=False)
    _texts: Mapping[str, Path] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", EventDecoder(self.dialect))
        kinds = get_args(self.events) or ((self.events,) if self.events else ())
        names = [str(kind.__struct_config__.tag) for kind in kinds]
        places = {name: self.decoder.text_paths("text", name)[0] for name in names}
        texts = {name: paths[0] for name, paths in places.items() if paths}
        object.__setattr__(self, "_texts", texts)

    @property
    def declared(self) -> bool:
        """Whether the flow is known by its dialect alone: its events are not decoded."""
        return self.events is None

    def sent_by(self, stack: str) -> FlowSpec:
        """Return the flow as a stack streams it: in the format of clients, or in one of its own.

        A stack with a format of its own is mirrored to and compared, and serves no client.
        """
        return self.other_format if self.other_format and stack == "graph" else self

    @property
    def requests(self) -> Mapping[str, Any]:
        """Requests by path, the flow's own first."""
        return {self.path: self.request, **self.extra_requests}

    def request_of(self, record: RequestRecord) -> Request[Any, Any]:
        """Decode a recorded request; raises `msgspec.MsgspecError` when it is not the flow's."""
        kind = self.requests.get(record.path or self.path)
        if kind is None:
            message = f"{self.name} has no path {record.path!r}"
            raise msgspec.ValidationError(message)
        body = msgspec.json.decode(record.body, type=kind)
        return Request(body, self._options_of(record), record.path, record.session)

    def _options_of(self, record: RequestRecord) -> msgspec.Struct:
        if not self.earlier_defaults:
            return msgspec.json.decode(record.options, type=self.options)
        stated = msgspec.json.decode(record.options, type=dict[str, Any])
        return msgspec.convert({**self.earlier_defaults, **stated}, self.options)

    def event_of(self, made: object) -> Event:
        """Return an event as code of others makes it: its struct, or the JSON of one.

        In a declared flow what is made is a payload, JSON or text, or a pair of an SSE name and a
        payload. Raises `msgspec.ValidationError` where it is no event of the flow.
        """
        if isinstance(made, Event):
            return made
        if not self.declared:
            event: Event = msgspec.convert(made, self.events)
            return event
        name, payload = made if isinstance(made, tuple) else ("", made)
        text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
        read = self.decoder.event(name, text.encode())
        frame = frame_of(self.dialect.framing, text, name)
        return PassedEvent(read.notable or read.name, frame)

    def name_of(self, event: Event) -> str:
        """Name of an event: its struct's tag, or the name under which it is passed on."""
        if isinstance(event, PassedEvent):
            return event.name
        return str(type(event).__struct_config__.tag)

    def text_of(self, event: Event) -> str | None:
        """Text of an event that carries some, as its dialect declares."""
        path = self._texts.get(self.name_of(event))
        if path is None:
            return None
        value: Any = event
        for key in path:
            value = getattr(value, key)
        return str(value)

    def decoded(self, event: WireEvent) -> Event | None:
        """Decode an event off the wire; None where it is none of the flow's."""
        if self.declared:
            return PassedEvent(event.name)
        try:
            own: Event = msgspec.json.decode(event.data, type=self.events)
        except NO_JSON:
            return None
        return own

    def conversation(self, body: Body, session: str = "") -> str | None:
        """Name of the request's conversation; None where it belongs to none.

        `session` is the name of one that begins.
        """
        return self.key(body, SESSION) or session or None

    def route_key(self, body: Body, wanted: str, session: str = "") -> str:
        """Value the request is routed by; the default key's where the wanted one is absent.

        Where that is absent, too, a digest of the body: equal requests are routed alike.
        """
        default = next(iter(self.route_keys), "")
        named = self.key(body, wanted) or self.key(body, default) or session
        if named:
            return named
        canonical = msgspec.json.encode(body, order="deterministic")
        return blake2b(canonical, digest_size=8).hexdigest()

    def key(self, body: Body, name: str) -> str:
        """Return the value of one of the route keys in a body; "" where it has none."""
        value: Any = body
        for step in self.route_keys.get(name, "").split("."):
            value = value_in(value, step)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        return key if len(key := str(value)) <= MAX_KEY_LENGTH else ""


def value_in(body: object, name: str) -> Any:
    """Return a field of a body, None where it has none of that name."""
    return body.get(name) if isinstance(body, Mapping) else getattr(body, name, None)


def endpoint_path(above: str, own: str, path: str) -> str:
    """Return the path of requests for a `path` of a flow at an address that has the path `above`.

    `own` is the flow's main path. An address without a path, or with one that ends in a slash, is a
    host's, and the flow's path follows. Any other is where the flow is; a further path of the flow
    follows it as it follows the flow's own.
    """
    if above.strip("/") and not above.endswith("/"):
        return above + path.removeprefix(own)
    return above.rstrip("/") + path
