"""What a flow is to the router: requests, events, and how an event is a frame on the wire."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from cutover.errors import Completed, Failed, Refusal

Event = msgspec.Struct
"""An event of a stream: a frozen struct, of a tagged union where a flow declares its events."""

B = TypeVar("B")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """What a client sent: `path` as its route has it, `target` as it stands in the request line.

    `params` are the arguments in the path; names of `headers` are in lower case.
    """

    method: str
    path: str
    target: str
    headers: Sequence[tuple[str, str]]
    content: bytes
    params: Mapping[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        """Return a header's first value, "" where there is none."""
        return next((value for known, value in self.headers if known == name), "")


@dataclass(frozen=True, slots=True)
class Request(Generic[B, P]):
    """A client's request: `body` and `options` are structs of its flow, `path` one of its paths.

    `headers` are for services, and never stored: credentials are among them.
    """

    body: B
    options: P
    path: str = ""
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False, compare=False)


Stack = Callable[[Request[Any, Any]], AsyncIterator[Event]]
"""A stack's implementation of one flow; it raises `Refused` before its first event or never."""


Verdict = Literal["preamble", "content", "terminal", "failure"]
"""What an event says: nothing of the answer yet, some of it, that it is whole, that it failed."""


class Frame(msgspec.Struct, frozen=True):
    """One event as the bytes that clients get, and what is compared of it.

    `texts` are pairs of a channel and the text that this frame adds to it. `rest` is the event
    without its texts, as canonical JSON; b"" where nothing else stands in it (a pure piece).
    `failed` is the failure that it tells the client of, `source` what its framing made it of.
    """

    raw: bytes
    name: str
    texts: tuple[tuple[str, str], ...] = ()
    rest: bytes = b""
    verdict: Verdict = "content"
    failed: Failed | None = None
    source: Any = None


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


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """How an answer begins."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
    )


class Framing(Protocol):
    """Reads one run's events: their frames, what they report, and how the stream ends."""

    texts: Texts
    verbatim: bool
    """Whether frames that say nothing go out, too, as a service's bytes do."""
    comments: bool
    """Whether comments may stand between frames."""

    @property
    def head(self) -> ResponseHead:
        """How the answer begins; to be asked behind the first frame."""

    def read(self, event: Event) -> Sequence[Frame]:
        """Return the frames of a stack's next event; raises what ends the run.

        A `preamble` waits for the first frame that is none; a `terminal` one is the last of a whole
        stream.
        """

    def frame(self, event: Event) -> Frame:
        """Return the frame of an event of the router's own."""

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode a frame without the first `skip` characters of each channel's new text."""

    @property
    def ending(self) -> Completed | Failed | Refusal:
        """How the stream has ended, behind the stack's last event."""


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


class Flow(Protocol):
    """A flow as the router serves it: `FlowSpec`, or one of services behind addresses."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def routes(self) -> Mapping[str, Sequence[str]]:
        """Methods by path; a path may have arguments in braces."""

    @property
    def pausing(self) -> Pausing | None:
        """How it pauses, None where it does not."""

    @property
    def operations(self) -> Sequence[Operation]:
        """Further operations, which do not stream."""

    @property
    def body_limits(self) -> Mapping[str, int]:
        """Bytes by path, where a body may be larger than others."""

    @property
    def key_names(self) -> Collection[str]:
        """Names of the route keys."""

    def body(self, asked: ClientRequest) -> Any:
        """Return the body that stacks are given; raises `Refused`."""

    def stored(self, path: str, body: Any, options: Any) -> Request[Any, Any]:
        """Return a request that was stored, of its decoded JSON."""

    def stored_frames(self, frames: Iterable[bytes]) -> Iterator[Frame]:
        """Yield the frames of a run's stream that was stored; raises `CutoverError`."""

    def key(self, body: Any, name: str = "") -> str:
        """Return the value of a route key, "" where the request has none usable."""

    def framer(self, after: Framing | None = None) -> Framing:
        """Return what reads a run's events; `after` has read those of the run before it."""

    def failure(self, options: Any, code: str, last: str | None, /) -> Sequence[Event]:
        """Return the events that honestly end a stream whose last one was named `last`."""
