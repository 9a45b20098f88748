"""A remote stack and its runs: their frames are passed on as bytes, split and not parsed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from hashlib import blake2b
from typing import Final, Protocol

import msgspec
from yarl import URL

from contract.errors import Refused
from contract.flow import Event, FlowSpec
from contract.records import ErrorRecord, Outcome, Role
from contract.wire import MAX_FRAME_BYTES, FrameReader, FrameSplitter, FrameTooLarge, Framing
from effects.loop_time import loop_now
from effects.tape import Signal, TapeSession
from router.config.capabilities import powers_at
from router.config.schema import RemoteStackSettings
from router.problems import word
from router.remote.body import StreamedResponse
from router.remote.endpoint import Endpoint, endpoint_url, returned
from router.remote.http1 import Client, ConnectTimedOut, ResponseLost, Unreachable
from router.serving.frames import Frame
from router.serving.run import Run, RunRequest
from router.stack import Headers, IncomingRequest, Powers, RunOutcome, StackName, header_of

_FINGERPRINT_BYTES = 6
_MOST_BYTES = 65_536
_PASSED: Final = msgspec.Struct()
"""Stands for the event of a frame that is not parsed."""
_EITHER: Final = frozenset({"", "text/plain", "application/octet-stream"})
"""Types that may be a stream or anything else: many servers set no other."""
_JSON = ("application/json", "application/problem+json")
_PLAIN = (b"", b"identity")
_REDIRECTION = 300
_REFUSAL = 400
_FAILURE = 500


class RemoteStack:
    """A service that serves flows at an address; made by `RemoteStack.open`."""

    def __init__(self, name: StackName, address: RemoteStackSettings, client: Client) -> None:
        self.name: StackName = name
        self.address = address
        # A remote stack reports no version: another address counts as other code.
        self.fingerprint = blake2b(address.url.encode(), digest_size=_FINGERPRINT_BYTES).hexdigest()
        self._client = client
        self._flows: dict[str, tuple[Endpoint, FrameReader]] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, name: StackName, address: RemoteStackSettings
    ) -> AsyncIterator[RemoteStack]:
        """Open connections to the stack for as long as the block lasts."""
        url = URL(address.url, encoded=True)
        async with aclosing(Client(url, address.connect_seconds)) as client:
            yield cls(name, address, client)

    @property
    def powers(self) -> Powers:
        """What its configuration declares; its effects are on no tape."""
        return powers_at(self.address)

    def serves(self, flow: FlowSpec) -> bool:
        """Whether it has a flow: all of them, unless the configuration names some."""
        return self.address.serves(flow.name)

    def new_run(
        self,
        request: RunRequest,
        session: TapeSession,
        *,
        strict: bool = True,
    ) -> RemoteRun:
        """Return a run of one flow for one request."""
        del strict  # unparsed bytes are not checked
        spec = request.spec
        path = request.request.path or spec.path
        if path not in self._flows:
            url = endpoint_url(self.address, spec, path)
            endpoint = Endpoint(self._client, url, self.address)
            self._flows[path] = endpoint, FrameReader(spec.dialect)
        return RemoteRun(request, session, *self._flows[path])


class StreamLimits(Protocol):
    """How long streams may be silent, in seconds, and which further media types they may have."""

    @property
    def media_types(self) -> frozenset[str]:
        """In lower case."""
        ...

    @property
    def first_event_seconds(self) -> float:
        """From the request on."""
        ...

    @property
    def idle_seconds(self) -> float:
        """The longest silence."""
        ...

    @property
    def total_seconds(self) -> float:
        """For the whole stream."""
        ...


class FlowEndpoint(Protocol):
    """One flow of a stack: behind an address, or of an application in this process."""

    path: str

    @property
    def limits(self) -> StreamLimits:
        """Limits of its streams."""
        ...

    async def request(
        self, incoming: IncomingRequest, exchange: str, role: Role, /
    ) -> StreamedResponse:
        """Send a request on; return when the head of the response is there."""
        ...


class RemoteRun(Run):
    """One flow of a remote stack, handling one request within the stack's own time limits."""

    def __init__(
        self,
        request: RunRequest,
        session: TapeSession,
        endpoint: FlowEndpoint,
        reader: FrameReader,
    ) -> None:
        super().__init__(request, session)
        self._endpoint = endpoint
        self._reader = reader
        self._split = FrameSplitter(self.spec.dialect)
        self._arrived = Signal()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._terminated = False
        self._no_terminal = not reader.terminal
        self._began = self._received = 0.0
        self._watch: asyncio.TimerHandle | None = None

    def text_of(self, frame: Frame) -> str | None:
        """Return a frame's text; None where it is no event of the flow."""
        event = self._reader.event(frame.data)
        return None if event is None else event.text()

    def last_event(self, position: int) -> Event:
        """Return the last event up to a frame; an unknown one where none is the flow's."""
        for earlier in reversed(self.frames[: position + 1]):
            if self._reader.is_event(earlier.data):
                event = self._reader.event(earlier.data)
                return (event and self.spec.decoded(event)) or _PASSED
        return _PASSED

    async def _produce(self) -> None:
        self._began = self._received = loop_now()
        self.session.waiting += 1  # its silence is limited here, not by the stall limit
        self._check_limits()
        try:
            await self._request()
        except FrameTooLarge as error:
            self._fail("frame_too_large", error)
        except ConnectTimedOut as error:
            self._fail("connect_timeout", error, "timeout")
        except Unreachable as error:
            self._fail("unreachable", error)
        except ResponseLost as error:
            self._fail("connection_lost", error, "truncated" if self.frames else "failed")
        finally:
            if self._watch is not None:
                self._watch.cancel()

    async def _request(self) -> None:
        request = self.request
        incoming = request.incoming or IncomingRequest(msgspec.json.encode(request.request.body))
        response = await self._endpoint.request(incoming, request.exchange, request.role)
        try:
            headers = returned(response.headers)
            if _REFUSAL <= response.status < _FAILURE:
                refusal = await _refusal(response, headers)
                kind = media_type(response.headers) or "no media type"
                self.why = f"POST {self._endpoint.path} answers {kind}"
                raise refusal
            if response.status >= _REDIRECTION:
                self._fail("bad_status", response.status)
                return
            encoding = header_of(response.headers, b"content-encoding").strip().lower()
            if encoding not in _PLAIN:
                # A compressed stream cannot be split.
                self._fail("content_encoding", encoding.decode("latin-1"))
                return
            kind = media_type(response.headers)
            if not may_stream(self.spec.dialect.framing, kind, self._endpoint.limits.media_types):
                # A proxy's page, or an error with a status of success.
                self._fail("content_type", kind)
                return
            self.headers = headers
            await self._read(response)
        finally:
            if self._terminated:
                response.drain()
            else:
                # A response read to its end has returned its connection; others are aborted.
                response.close()

    async def _read(self, response: StreamedResponse) -> None:
        """Wait while frames arrive; hold them for a client that reads slowly."""
        self._arrived = response.changed
        response.listen(self._receive)
        while not self.complete and not response.ended:
            if self.backpressure.exceeded:
                await self._await_client(response)
            else:
                await response.changed.wait()
        if self.complete:
            return
        response.check()
        rest = self._split.flush()
        if rest and (self._no_terminal or self._reader.notable(rest) in self._reader.terminal):
            self._take([rest])  # only its blank line is missing
        if self.frames and (self._no_terminal or (self.reported and self.spec.declared)):
            self.complete = True

    def _receive(self, piece: bytes) -> None:
        """Take bytes of the stream, in the turn of the loop in which they arrived."""
        if self._terminated or self.session.fenced:
            return
        self._received = loop_now()
        frames = self._split.feed(piece)
        if frames:
            self._take(frames)
        if self.backpressure.exceeded:
            self._arrived.wake()

    async def _await_client(self, response: StreamedResponse) -> None:
        """Pause reading until the client has caught up: that time does not count for the stack."""
        before = loop_now()
        response.pause()
        await self.backpressure.yield_turn()
        response.resume()
        self._received = loop_now()
        self._began += self._received - before

    def _take(self, pieces: Sequence[bytes]) -> None:
        """Add frames; what follows the terminal frame is dropped."""
        if not self.frames and not any(map(self._reader.is_event, pieces)):
            # Comments are no response: a stack that falls silent after them can still be replaced.
            self._held += pieces
            self._held_bytes += sum(map(len, pieces))
            if self._held_bytes > MAX_FRAME_BYTES:
                raise FrameTooLarge(self._held_bytes)
            return
        at = self.session.stamp()
        frames = [Frame(at, data, _PASSED) for data in pieces]
        for suspect in self._reader.suspects(pieces):
            name = self._reader.notable(pieces[suspect])
            self.reported = self.reported or name in self._reader.failures
            if name in self._reader.terminal:
                self._terminated = True
                self._arrived.wake()
                del frames[suspect + 1 :]
                break
        if self._held:
            frames[:0] = [Frame(at, data, _PASSED) for data in self._held]
            self._held.clear()
        self._accept(frames, sum([len(frame.data) for frame in frames]), last=self._terminated)

    def _unfinished(self) -> RunOutcome:
        if self.outcome is None and not self.complete:
            self.why = self._why_truncated()
        return super()._unfinished()

    def _why_truncated(self) -> str:
        """Describe a stream that ended too early: how much of it the flow knows."""
        if not self.frames:
            return f"none of {len(self._held)} frames is an event" if self._held else "no frames"
        read = (self._reader.event(frame.data) for frame in self.frames)
        events = [event for event in read if event is not None]
        foreign = sum(self.spec.decoded(event) is None for event in events)
        known = f", and {foreign} of {len(events)} events are not of this flow" if foreign else ""
        return f"no {' or '.join(sorted(self._reader.terminal))} at the end{known}"

    def _fail(self, code: str, why: object, outcome: Outcome = "failed") -> None:
        kind = type(why).__name__ if isinstance(why, Exception) else str(why)
        self.why = str(why)
        self.finish(RunOutcome(outcome, "stack", ErrorRecord(code, kind)))

    def _check_limits(self) -> None:
        """Check the time limits, and again when the next could have passed."""
        limits, loop = self._endpoint.limits, asyncio.get_running_loop()
        if self.backpressure.waiting:
            self._watch = loop.call_later(limits.idle_seconds, self._check_limits)
            return
        code, due = "total_timeout", self._began + limits.total_seconds
        quiet = (
            self._received + limits.idle_seconds
            if self.frames
            else self._began + limits.first_event_seconds
        )
        if quiet < due:
            code, due = "idle_timeout" if self.frames else "first_event_timeout", quiet
        if (now := loop_now()) < due:
            # The first event may come at once, and be the last.
            seconds = min(due - now, limits.idle_seconds)
            self._watch = loop.call_later(seconds, self._check_limits)
        else:
            self._fail(code, round(now - self._began, 3), "timeout")
            self._cancel()


def media_type(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the media type of a response, without parameters, in lower case."""
    header = header_of(headers, b"content-type")
    return header.partition(b";")[0].strip().lower().decode("latin-1")


def may_stream(framing: Framing, kind: str, also: Collection[str] = frozenset()) -> bool:
    """Whether a response of a media type may be a stream of a framing; those in `also` may."""
    if kind in _EITHER or kind in also:
        return True
    if framing == "sse":
        return kind == "text/event-stream"
    if framing == "text":
        return False  # its one type, text/plain, is in `_EITHER`
    # x-ndjson, jsonl, jsonlines, stream+json, or simply json: there is no registered one.
    return "json" in kind and kind != "application/problem+json"


class RemoteRefused(Refused):
    """A remote stack refuses a request; `body` is None where it is not for clients."""

    def __init__(
        self, status: int, code: str, headers: Headers, body: bytes | None, detail: str = ""
    ) -> None:
        super().__init__(status, code)
        self.headers = headers
        self.body = body
        self.detail = detail


class _ProblemBody(msgspec.Struct):
    """The code in a problem's body."""

    code: str = ""


class _PlainProblem(msgspec.Struct, forbid_unknown_fields=True):
    """A problem with the members of RFC 9457 and a code, and no others."""

    detail: str
    code: str = ""
    status: int = 0
    title: str = ""
    type: str = ""
    instance: str = ""


_problem = msgspec.json.Decoder(_ProblemBody)
_plain_problem = msgspec.json.Decoder(_PlainProblem)


async def _refusal(response: StreamedResponse, headers: Headers) -> RemoteRefused:
    """Return the refusal: a JSON body is passed on, any other is not for clients of an API."""
    status = response.status
    body = await response.read(_MOST_BYTES)
    if media_type(response.headers) not in _JSON or len(body) > _MOST_BYTES:
        kept = tuple((name, value) for name, value in headers if name == b"retry-after")
        return RemoteRefused(status, word(status), kept, None)
    try:
        code = _problem.decode(body).code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        code = ""
    return RemoteRefused(status, code or word(status), headers, body, _sentence(body))


def _sentence(body: bytes) -> str:
    """Return the sentence of a problem, the whole body of any other refusal."""
    try:
        return _plain_problem.decode(body).detail
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
