"""A flow's endpoint: raw ASGI, from the body to the last frame."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from cutover.errors import Failed, Left, Pause, Refused, outcome_of
from cutover.flow import ClientRequest, Flow, Framing, Request, ResponseHead
from cutover.flow_spec import decoded
from cutover.tape import Exchange
from router.assign import Assignment, Shares, StackName, assign, drawn
from router.breaker import Breaker
from router.captures import Captures
from router.driver import Candidate, Stopping
from router.edge import ResponseBody, client_request, not_served, refused, respond, while_connected
from router.exchange import Served, finish
from router.pauses import PausedExchanges
from router.serve import CutOff, NotServed, serve
from router.shadow import Shadows

log = logging.getLogger(__name__)

STOPPED = outcome_of(Stopping())
LAST_SECONDS = 5.0
"""What a stream may take to end once it has been stopped; a client that reads nothing is cut."""


Pin = Callable[[str, str, str], Awaitable[str]]
"""Pins a flow's conversation to a stack; returns what it was pinned to before, or ""."""


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """What of the configuration a flow's requests are served by; swapped whole."""

    shares: Shares = field(default_factory=Shares)
    fallback: bool = True
    shadow_percent: float = 0.0
    options: Any = None
    route_key: str = ""
    sticky: str = ""
    """The route key that names a conversation, which stays with its first turn's stack."""
    qa_key: str = ""
    """What a tester's request must know to ask for a stack; "": none may."""
    capture_percent: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    """What captures call these settings, and the code that is served by them."""


@dataclass(slots=True, eq=False)
class Streams:
    """The streams that are open in this process, at most `limit`."""

    limit: int
    open: int = 0
    draining: bool = False
    served: set[Served] = field(default_factory=set)
    opening: set[Served] = field(default_factory=set)
    """Those whose client has no text yet."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests refused before an exchange began, by flow and code."""
    _free: asyncio.Event = field(default_factory=asyncio.Event)

    async def drain(self, seconds: float) -> None:
        """Refuse new streams and wait for those that are open; what is left ends in failure."""
        self.draining = True
        for wait in (seconds, LAST_SECONDS):
            if self.open:
                self._free.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._free.wait(), wait)
            for one in self.served:
                one.stop()

    def hurried(self) -> bool:
        """Whether a client waits for its first text."""
        return bool(self.opening)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place; raises `Refused` 503 where none is free."""
        if self.draining:
            raise Refused(503, "stopping", "this server stops: ask another one")
        if self.open >= self.limit:
            raise Refused(503, "overloaded", "too many streams are open: try again in a moment")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._free.set()


@dataclass(slots=True)
class FlowEndpoint:
    """Serves the paths of one flow."""

    flow: Flow
    stacks: Mapping[str, Candidate]
    settings: Callable[[], FlowSettings]
    pauses: PausedExchanges
    shadows: Shadows
    ending: set[asyncio.Task[Any]]
    """What outlives its request, such as settling an exchange; a stopping server waits for it."""
    streams: Streams
    breakers: Mapping[str, Breaker]
    """By stack."""
    pin: Pin
    observe: Callable[[Served], None]
    """Told of each exchange that has ended."""
    captures: Captures | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            asked = await client_request(scope, receive, self.flow.body_limits)
            with self.streams.place():
                if self.flow.pausing is not None and asked.path == self.flow.pausing.resume:
                    await self._resume(asked, receive, send)
                else:
                    await self._begin(asked, receive, send)
        except Refused as error:
            self.streams.refused[self.flow.name, error.code] += 1
            await respond(send, refused(error))

    async def _begin(self, asked: ClientRequest, receive: Receive, send: Send) -> None:
        settings, flow = self.settings(), self.flow
        request = Request(flow.body(asked), settings.options, asked.path, asked.headers)
        exchange_id = uuid.uuid4().hex
        key = flow.key(request.body, settings.route_key) or exchange_id
        forced = _forced(asked, settings.qa_key)
        assignment = await self._assigned(settings, key, forced, request.body)
        served = Served(exchange_id, flow, request, Exchange(), assignment.stack, settings.versions)
        served.why = assignment.why
        try:
            await self._stream(served, settings, receive, send)
        finally:
            self._keep(finish(served, partial(self._record, settings, key)))

    async def _assigned(
        self, settings: FlowSettings, key: str, forced: StackName | None, body: Any
    ) -> Assignment:
        """Assign a request; a conversation that is sticky keeps the stack of its first turn."""
        found = assign(settings.shares, key, asked=forced)
        conversation = self.flow.key(body, settings.sticky) if settings.sticky else ""
        if not conversation or found.why != "percent":
            return found
        try:
            pinned = await self.pin(self.flow.name, conversation, found.stack)
        except Exception:
            log.exception("flow=%s conversation not pinned: the store is away", self.flow.name)
            return found
        if not pinned:  # its first turn: the share has drawn it, and the gate counts it
            return found
        known: StackName = "graph" if pinned == "graph" else "legacy"
        return assign(settings.shares, key, pinned=known)

    async def _resume(self, asked: ClientRequest, receive: Receive, send: Send) -> None:
        settings, pausing = self.settings(), self.flow.pausing
        assert pausing is not None  # noqa: S101 - the caller's condition
        body = decoded(asked, pausing.resume_request)
        continued = await self.pauses.resume(self.flow, body, uuid.uuid4().hex)
        served = continued.served
        key = self.flow.key(served.request.body, settings.route_key) or served.id
        served.versions = settings.versions

        async def settle() -> None:
            try:
                await finish(served, partial(self._record, settings, key))
            finally:
                await continued.end()

        try:
            served.assigned, served.why = assign(settings.shares, key).stack, "resumed"
            await self._stream(served, settings, receive, send)
        finally:
            await asyncio.shield(self._keep(settle()))

    def _candidates(self, assigned: str, settings: FlowSettings) -> Sequence[Candidate]:
        """Return the stacks that may serve, in order: one whose breaker is open comes last."""
        names = sorted(self.stacks, key=lambda one: one != assigned)  # there may be one alone
        chosen = names if settings.fallback else names[:1]
        if len(chosen) > 1 and not self.breakers[chosen[0]].allows():
            chosen = [*chosen[1:], chosen[0]]
        return [self.stacks[one] for one in chosen]

    async def _stream(
        self, served: Served, settings: FlowSettings, receive: Receive, send: Send
    ) -> None:
        """Send the stream; the client's leaving cancels what runs for it."""
        frames = serve(served, self._candidates(served.assigned, settings), self.pauses.pause)
        self.streams.served.add(served)
        self.streams.opening.add(served)
        try:
            async with while_connected(receive):
                await self._send_frames(served, frames, send)
        except asyncio.CancelledError:  # the server stops: the client is still there
            await frames.aclose()
            if served.outcome == Left():
                served.outcome = STOPPED
            raise
        except OSError:
            pass  # the connection is gone, or its client reads nothing
        finally:
            self.streams.served.discard(served)
            self.streams.opening.discard(served)
            await frames.aclose()

    async def _send_frames(
        self, served: Served, frames: AsyncGenerator[bytes, None], send: Send
    ) -> None:
        body = ResponseBody(send, partial(_head, served))
        try:
            async with body.open():
                frame = await _first(served, frames, body)
                await self._expire_question(served)
                while frame is not None:
                    await body.send(frame)
                    if served.first_text is None and served.sent.texts:
                        served.first_text = asyncio.get_running_loop().time()
                        self.streams.opening.discard(served)
                    frame = await anext(frames, None)
                await body.end()
        except CutOff:
            return  # without an end: the server closes the connection
        except Refused as error:
            await respond(send, refused(error))
        except NotServed as error:
            await respond(send, not_served(error.failed))

    async def _expire_question(self, served: Served) -> None:
        """Expire what the session waits for, once a new turn is served: it goes on without it."""
        session = self.flow.key(served.request.body)
        continued = served.tape.journal is not None
        if self.flow.pausing is None or not session or continued:
            return
        if not isinstance(served.outcome, Pause):  # that of its own question expired all others
            expiring = self.pauses.store.expire_session(self.flow.name, session)
            await asyncio.shield(self._keep(expiring))

    async def _record(self, settings: FlowSettings, key: str, exchange: Served) -> None:
        """Record an exchange that has ended: count it, feed the breakers, capture and mirror it."""
        self.observe(exchange)
        for driver in exchange.runs:
            self.breakers[driver.candidate.name].record(driver.run.ended)
        salt, captures = settings.shares.salt, self.captures
        if not drawn("capture", salt, key, settings.capture_percent):
            captures = None
        if captures is not None:
            captures.served(exchange)
        others = [one for one in self.stacks if one != exchange.served]
        mirrored = drawn("shadow", salt, key, settings.shadow_percent)
        if mirrored and others:
            keep = captures.played if captures else None
            body, sticky = exchange.request.body, settings.sticky
            conversation = self.flow.key(body, sticky) if sticky else ""
            self.shadows.offer(exchange, self.stacks[others[0]], keep, conversation)

    def _keep(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.ending.add(task)
        task.add_done_callback(self.ending.discard)
        return task


async def _first(
    served: Served, frames: AsyncGenerator[bytes, None], body: ResponseBody
) -> bytes | None:
    """Return the first frame, or what can be said where the head went out in silence before it."""
    try:
        frame = await anext(frames, None)
        if not body.begun or _streams(served):
            return frame
        await frames.aclose()  # an answer that is no stream has a head of its own
        served.outcome, code = Failed("no_stream"), "no_stream"
    except (Refused, NotServed) as error:
        if not body.begun:
            raise
        code = error.code if isinstance(error, Refused) else error.failed.code
    if ending := b"".join(served.close(Failed(code))):
        return ending
    raise CutOff(code)


def _framer(served: Served) -> Framing:
    return served.runs[-1].framer if served.runs else served.flow.framer()


def _streams(served: Served) -> bool:
    """Whether the newest run answers in a stream, in which comments may stand."""
    framer = _framer(served)
    return framer.comments and framer.head.status < HTTPStatus.BAD_REQUEST


def _head(served: Served) -> tuple[Message, bool]:
    """Return the head of a stream, and whether comments may go out before the next frame."""
    framer = _framer(served)
    headers = [
        *((name.encode(), value.encode("latin-1")) for name, value in framer.head.headers),
        (b"x-cutover-exchange", served.id.encode()),
        (b"x-cutover-assigned", served.assigned.encode()),
        (b"x-cutover-served", served.served.encode()),
    ]
    start = {"type": "http.response.start", "status": framer.head.status, "headers": headers}
    return start, _streams(served) and (bool(served.sent) or framer.head != ResponseHead())


def _forced(asked: ClientRequest, qa_key: str) -> StackName | None:
    """Return the stack that a tester's request asks for, in a header beside the tester's key."""
    given = asked.header("x-cutover-qa-key").encode("latin-1")
    known = qa_key and compare_digest(given, qa_key.encode())
    match asked.header("x-cutover-stack"):
        case "legacy" | "graph" as stack if known:
            return stack
        case _:
            return None
