"""What a flow is: one callable of one shape, and all that router and compare know of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from contract.grammar import Grammar
from contract.human import HumanAnswer
from contract.ports import Effects
from contract.records import RequestRecord
from contract.stores import Turn
from contract.wire.dialect import Dialect
from contract.wire.reader import NO_JSON, EventDecoder, WireEvent

Event = msgspec.Struct
"""An event of a stream: a frozen struct; its flow's union says which."""


class PassedEvent(Event, frozen=True):
    """An event that is passed on without decoding it: its name, and its frame."""

    name: str
    frame: bytes = b""


SESSION = "session_id"
"""The route key whose field names the conversation a request belongs to, where a flow has one."""

USER = "user_id"
"""The route key whose field names who asks."""

Body = msgspec.Struct | Mapping[str, Any]
"""A request's body: a struct, or the JSON object itself where a flow's is not declared."""

LONGEST_KEY = 512
"""Characters of what can be routed by."""

B = TypeVar("B", bound=Body)
P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Request(Generic[B, P]):
    """What a flow is asked: the client's body, and what this deployment configured.

    `path` is the one of the flow's further paths it was asked at, "" for its own. `session` names
    the conversation that begins with a request which names none, in flows that open them.
    """

    body: B
    options: P
    path: str = ""
    session: str = ""


Flow = Callable[[Request[Any, Any], Effects], AsyncIterator[Event]]
"""A flow: an async generator function; it raises `Refused` before its first event or never."""


class Breaker(Protocol):
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


def _never_suspends(_options: object, _last: Event | None) -> Sequence[Event]:
    return ()


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """A flow as router and compare see it.

    `failure(options, code, last)` gives the frames that end a stream whose last event was `last`
    with an honest failure. `route_keys` says where in the body each route key stands, as a path
    with dots; the first is the default. `request` is a struct, or any type of a JSON object.

    `also` are further paths at which a stream is asked for, each with its request; `bodies` says at
    which of all paths a body may have more bytes than elsewhere, and how many. `responding` and
    `continuing` say how a pause is answered and gone on from, for flows that pause; `calls` are
    what is asked of the stores, by no stack. `afterwards` is for how many seconds a flow may go on
    working after its terminal event; the locks it has released by then are free at once. One that
    `opens` conversations is told the name of each: all turns are routed by it, the first one too.
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
    suspended: Callable[[Any, Event | None], Sequence[Event]] = _never_suspends
    also: Mapping[str, type[msgspec.Struct]] = field(default_factory=dict)
    bodies: Mapping[str, int] = field(default_factory=dict)
    responding: AnswerEndpoint | None = None
    continuing: ContinueEndpoint | None = None
    calls: tuple[StoreEndpoint, ...] = ()
    afterwards: float = 0.0
    opens: bool = False
    decoder: EventDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", EventDecoder(self.dialect))

    @property
    def requests(self) -> Mapping[str, Any]:
        """What is asked where: paths and requests, the flow's own first."""
        return {self.path: self.request, **self.also}

    def asked(self, record: RequestRecord) -> Request[Any, Any]:
        """Read a request that was written down; raises `msgspec.MsgspecError` on a foreign one."""
        wanted = self.requests.get(record.path or self.path)
        if wanted is None:
            message = f"{self.name} is not asked at {record.path!r}"
            raise msgspec.ValidationError(message)
        return Request(
            msgspec.json.decode(record.body, type=wanted),
            msgspec.json.decode(record.options, type=self.options),
            record.path,
            record.session,
        )

    def name_of(self, event: Event) -> str:
        """Name of an event: its struct's tag."""
        return str(type(event).__struct_config__.tag)

    def text_of(self, event: Event) -> str | None:
        """Text of an event that carries some, as its dialect says."""
        paths, _ = self.decoder.text_paths("text", self.name_of(event))
        if self.declared or not paths:
            return None
        value: Any = event
        for key in paths[0]:
            value = getattr(value, key)
        return str(value)

    @property
    def declared(self) -> bool:
        """Whether the flow is known by its dialect alone: its events are not decoded."""
        return self.events is None

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
        """Value that names the request's conversation; None where it belongs to none.

        `session` is the name of one that begins.
        """
        return self._key(body, SESSION) or session or None

    def route_key(self, body: Body, wanted: str, session: str = "") -> str:
        """Value the request is routed by; the default key's where the wanted one is absent.

        Where that is absent, too, a digest of the body: equal requests go the same way.
        """
        default = next(iter(self.route_keys), "")
        named = self._key(body, wanted) or self._key(body, default)
        return named or session or _digest(body)

    def _key(self, body: Body, name: str) -> str:
        value: Any = body
        for step in self.route_keys.get(name, "").split("."):
            value = value_in(value, step)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        said = str(value)
        return said if len(said) <= LONGEST_KEY else ""


def value_in(body: object, name: str) -> Any:
    """Give a field of a body, None where it has none of that name."""
    return body.get(name) if isinstance(body, Mapping) else getattr(body, name, None)


def _digest(body: Body) -> str:
    return blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=8).hexdigest()


class SessionStore(Protocol):
    """What is kept of conversations, wherever it is kept."""

    async def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Read every turn of a session, oldest first; none of one nobody knows."""
        ...

    async def forget(self, session_id: str, *, lock: str) -> bool:
        """Remove a session: turns, what was learnt in it, pauses, checkpoints.

        False when nothing was kept. Raises `Refused` 409 while an exchange holds `lock`.
        """
        ...


Perform = Callable[[SessionStore, Mapping[str, str]], Awaitable["msgspec.Struct | None"]]
"""Answers a call from its path's arguments: the answer's body, None where there is none.

Raises `Refused`.
"""


@dataclass(frozen=True, slots=True)
class StoreEndpoint:
    """A call that is no stream and no stack's: arguments stand in braces in its path."""

    method: Literal["GET", "DELETE"]
    path: str
    perform: Perform
    reply: type[msgspec.Struct] | None = None


@dataclass(frozen=True, slots=True)
class AnswerEndpoint:
    """Where the answer to a question is brought; the functions read it out of the body."""

    path: str
    request: type[msgspec.Struct]
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], HumanAnswer]


def _brought_before(_body: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ContinueEndpoint:
    """Where a paused exchange goes on; `answer` reads one that comes with the request, if any."""

    path: str
    request: type[msgspec.Struct]
    hitl_id: Callable[[Any], str]
    answer: Callable[[Any], HumanAnswer | None] = _brought_before
