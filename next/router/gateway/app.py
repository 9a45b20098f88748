"""The gateway: an HTTP server whose answers are its providers', on the tape of the caller's run."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import aiohttp
import httpx
import msgspec
from starlette.types import Receive, Scope, Send

from cutover.errors import Control, Refused
from cutover.tape import Call, Entry, Run
from cutover.tape.entry import Item
from cutover.tape.remote import KEY_HEADER, RUN_HEADER, TARGET_HEADER
from cutover.tape.run import CallFailed
from cutover.tape.transport import HttpHead, http_call, read_head
from router.edge import read_body, while_connected
from router.gateway.effects import Effects
from router.gateway.providers import (
    CREDENTIALS,
    Destination,
    Outgoing,
    Provider,
    credential,
    equal,
    fetch,
    outgoing_headers,
    target_of,
)
from router.gateway.refusals import CallRefused, for_model, form_of, of_control, of_fault
from router.gateway.runs import OpenRuns

log = logging.getLogger("cutover.gateway")

_LARGE = 1 << 20
"""Bytes of a body from which its key is made in a thread."""
_EFFECT: Final = re.compile(r"/effects(?:/(\d+))?")
_IN_PATH: Final = re.compile(r"/runs/([^/]+)(/.*)")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
_WHOLE: Final = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Which providers the gateway asks and what it accepts; without a `key` callers need none.

    One that `replays` refuses what belongs to no run: its callers are answered from a tape.
    """

    providers: Sequence[Provider]
    key: str = ""
    origins: frozenset[str] = frozenset()
    body_bytes: int = 32 << 20
    replays: bool = False


class Named(NamedTuple):
    """The run that a call names, and how: a trace may be another's, path and header are ours."""

    run: str
    how: Literal["path", "header", "trace"]


def split_path(path: str) -> tuple[str, str]:
    """Return the id of the run in a path, "" without one, and the path under it."""
    found = _IN_PATH.fullmatch(path)
    return (found[1], found[2]) if found else ("", path)


def named(in_path: str, headers: Mapping[str, str]) -> Named | None:
    """Return the run that a call names, None for one that names none."""
    if in_path:
        return Named(in_path, "path")
    if given := headers.get(RUN_HEADER):
        return Named(given, "header")
    trace = _TRACE.fullmatch(headers.get("traceparent", ""))
    return Named(trace[1], "trace") if trace else None


@dataclass(slots=True)
class Arrived:
    """A call as it came in; `path` is without `/runs/<id>`; `in_path` is that id."""

    method: str
    path: str
    query: str
    in_path: str
    named: Named | None
    pairs: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes = b""


def _arrived(scope: Scope) -> Arrived:
    raw = scope.get("raw_path") or scope["path"].encode()
    in_path, path = split_path(raw.decode("ascii", "replace"))
    pairs = [(one.decode("latin-1"), value.decode("latin-1")) for one, value in scope["headers"]]
    headers = dict(pairs)
    query = scope["query_string"].decode("ascii", "replace")
    return Arrived(scope["method"], path, query, in_path, named(in_path, headers), pairs, headers)


@dataclass(slots=True, eq=False)
class Gateway:
    """Answers calls of services (ASGI): requests to providers, and questions about effects."""

    settings: GatewaySettings
    runs: OpenRuns
    session: aiohttp.ClientSession
    effects: Effects = field(init=False)

    def __post_init__(self) -> None:
        self.effects = Effects(self.runs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a caller that leaves cancels what is done for it."""
        arrived = _arrived(scope)
        try:
            self._admit(arrived)
            effect = _EFFECT.fullmatch(arrived.path) if arrived.in_path else None
            target = None if effect else self._target(arrived)
            arrived.body = await read_body(receive, self.settings.body_bytes)
            async with while_connected(receive):
                if target is not None:
                    await self._answer(arrived, target, send)
                elif effect is not None:
                    number = effect[1] or ""
                    reply = await self.effects.answer(arrived.in_path, number, arrived.body)
                    await respond(send, reply.status, reply.body)
        except (CallRefused, Refused) as error:
            refused = CallRefused(error.status, error.code, error.detail)
            refusal = error if isinstance(error, CallRefused) else refused
            form = form_of(arrived.path, arrived.headers)
            await respond(send, refusal.status, refusal.body(form), refusal.headers(form))

    # Before the body.

    def _admit(self, arrived: Arrived) -> None:
        """Raise `CallRefused` for a call of a page of another origin, or one without the key."""
        origin = arrived.headers.get("origin")
        if origin is not None and origin not in self.settings.origins:
            detail = "pages may not call the gateway: add the origin to [gateway] origins"
            raise CallRefused(403, "foreign_origin", detail)
        media = arrived.headers.get("content-type", "").partition(";")[0].strip().lower()
        if arrived.method == "POST" and for_model(arrived.path) and media != "application/json":
            raise CallRefused(415, "no_json", "content-type must be application/json")
        key = self.settings.key
        given = [credential(one, arrived.headers.get(one, "")) for one in CREDENTIALS]
        given.append(arrived.headers.get(KEY_HEADER, ""))
        if key and not any(equal(one, key) for one in given):
            detail = "the key of the gateway is missing or wrong: send it as the key of the API"
            raise CallRefused(401, "wrong_key", detail)

    def _target(self, arrived: Arrived) -> Destination:
        origin = arrived.headers.get(TARGET_HEADER, "")
        found = target_of(self.settings.providers, arrived.path, arrived.query, origin)
        if found is None:
            known = ", ".join(f"/{one.name}/" for one in self.settings.providers)
            detail = f"no declared provider here: paths begin with /v1/ or one of {known}"
            raise CallRefused(404, "unknown_provider", detail)
        return found

    # The answer.

    async def _answer(self, arrived: Arrived, target: Destination, send: Send) -> None:
        headers = outgoing_headers(arrived.pairs, self.settings.key, target.provider)
        request = Outgoing(arrived.method, target, headers, arrived.body)
        run = self._run(arrived)
        call: Call | None = None
        if run is not None:
            call = await _call(request, arrived.headers.get("content-type", ""))
            if run.over:
                run.exchange.off_tape[call.name] += 1
                self._off_tape("run_over", arrived)
                run = None

        def perform() -> AsyncGenerator[Item, None]:
            return fetch(self.session, request, pieces=run is None)

        items = run.call(call, perform) if run is not None and call is not None else perform()
        async with aclosing(items):
            try:
                first = await anext(items)
                head = read_head(run, call, first) if run and call else _head(first)
                whole = await _joined(items) if _is_whole(head) else None
            except (Control, CallFailed, httpx.TransportError) as error:
                played = bool(run and call and run.played(call))
                raise _refusal(error, played=played) from error
            if whole is not None:
                await respond(send, head.status, whole, head.headers)
            else:
                entry = next(one.entry for one in run.plays if one.call is call) if run else None
                await _stream(send, head, items, entry)

    def _run(self, arrived: Arrived) -> Run | None:
        """Return the run of a call, None where it goes off the tape.

        Raises `CallRefused` for an id of ours whose run is gone, unless that was live to its end:
        what a shadow asks for belatedly must not be bought.
        """
        if arrived.named is None:
            self._off_tape("no_run", arrived)
            return None
        name, how = arrived.named
        if (run := self.runs.find(name)) is not None:
            return run
        performs = self.runs.performs(name)
        if not performs and (how != "trace" or performs is not None):
            detail = "the run that this call names is over, or of another process"
            raise CallRefused(410, "unknown_run", detail)
        self._off_tape("run_over" if performs else "unknown_trace", arrived)
        return None

    def _off_tape(self, reason: str, arrived: Arrived) -> None:
        if not self.runs.uncorrelated[reason]:
            log.warning("call off the tape reason=%s path=%s", reason, arrived.path)
        self.runs.uncorrelated[reason] += 1
        if self.settings.replays:
            raise CallRefused(409, "no_run", "a replay performs nothing: send the run's headers on")


async def _call(request: Outgoing, media: str) -> Call:
    target = request.target.url.raw_path_qs
    if len(request.body) > _LARGE:
        return await asyncio.to_thread(http_call, request.method, target, media, request.body)
    return http_call(request.method, target, media, request.body)


def _head(item: Item) -> HttpHead:
    return msgspec.json.decode(item if isinstance(item, bytes) else b"", type=HttpHead)


def _is_whole(head: HttpHead) -> bool:
    media = dict(head.headers).get("content-type", "").partition(";")[0].strip().lower()
    return media in _WHOLE


async def _joined(items: AsyncGenerator[Item, None]) -> bytes:
    return b"".join([item async for item in items if isinstance(item, bytes)])


def _refusal(error: Exception, *, played: bool) -> CallRefused:
    if isinstance(error, Control):
        return of_control(error)
    kind = error.fault.kind if isinstance(error, CallFailed) else type(error).__name__
    return of_fault(kind, played=played)


async def _stream(
    send: Send, head: HttpHead, items: AsyncGenerator[Item, None], entry: Entry | None
) -> None:
    """Send an answer as it comes: what is on the tape together goes out together.

    One that breaks off leaves the response without its end.
    """
    await _start(send, head.status, head.headers)
    due, read = bytearray(), 1
    try:
        async for item in items:
            read += 1
            due += item if isinstance(item, bytes) else b""
            if entry is None or read >= len(entry.items):
                await send({"type": "http.response.body", "body": bytes(due), "more_body": True})
                due.clear()
    except (Control, CallFailed, httpx.TransportError) as error:
        log.info("answer broken off error=%s", type(error).__name__)
        return
    await send({"type": "http.response.body", "body": b""})


async def _start(send: Send, status: int, headers: Sequence[tuple[str, str]]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def respond(
    send: Send,
    status: int,
    body: bytes,
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),),
) -> None:
    """Send a whole response."""
    await _start(send, status, [*headers, ("content-length", str(len(body)))])
    await send({"type": "http.response.body", "body": body})
