"""The gateway: an HTTP server whose answers are its providers', on the tape of the caller's run."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import aiohttp
import httpx
import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cutover.errors import Control, Refused
from cutover.tape import Call, Entry, Run
from cutover.tape.entry import Item
from cutover.tape.remote import KEY_HEADER, RUN_HEADER, TARGET_HEADER
from cutover.tape.run import CallFailed
from cutover.tape.transport import HttpHead, http_call, read_head
from router.edge import read_body, respond, while_connected
from router.gateway.effects import Effects
from router.gateway.providers import (
    CREDENTIALS,
    Outgoing,
    Provider,
    Target,
    credential,
    equal,
    fetch,
    outgoing_headers,
    target_of,
)
from router.gateway.refusals import JSON, answer_of, for_model, form_of, refusal_of
from router.gateway.runs import TRIAL, OpenRuns

log = logging.getLogger("cutover.gateway")

_LARGE = 1 << 20
"""Bytes of a body from which its key is made in a thread."""
_EFFECT: Final = re.compile(r"/effects(?:/(\d+))?")
_IN_PATH: Final = re.compile(r"/runs/([^/]+)(/.*)")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
_WHOLE: Final = (JSON, "application/problem+json")


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


class Arrived(NamedTuple):
    """A call as it came in; `path` is without `/runs/<id>`.

    `run` is the id of the run that it names, "" where it names none, and `how` it does: a trace may
    be another's, path and header are ours.
    """

    method: str
    path: str
    query: str
    headers: Headers
    run: str = ""
    how: Literal["path", "header", "trace", ""] = ""


def arrived(scope: Scope) -> Arrived:
    """Return the call of a request."""
    raw = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace")
    query, headers = scope["query_string"].decode("ascii", "replace"), Headers(scope=scope)
    if found := _IN_PATH.fullmatch(raw):
        return Arrived(scope["method"], found[2], query, headers, found[1], "path")
    call = Arrived(scope["method"], raw, query, headers)
    if given := headers.get(RUN_HEADER):
        return call._replace(run=given, how="header")
    trace = _TRACE.fullmatch(headers.get("traceparent", ""))
    return call._replace(run=trace[1], how="trace") if trace else call


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
        call = arrived(scope)
        try:
            self._admit(call)
            effect = _EFFECT.fullmatch(call.path) if call.how == "path" else None
            target = None if effect else self._target(call)
            body = await read_body(receive, self.settings.body_bytes)
            async with while_connected(receive):
                if target is not None:
                    await self._answer(call, body, target, send)
                elif effect is not None:
                    reply = await self.effects.answer(call.run, effect[1] or "", body)
                    await respond(send, Response(reply.body, reply.status, media_type=JSON))
        except Refused as error:
            await respond(send, answer_of(error, form_of(call.path, call.headers)))

    # Before the body.

    def _admit(self, call: Arrived) -> None:
        """Raise `Refused` for a call of a page of another origin, or one without the key."""
        origin = call.headers.get("origin")
        if origin is not None and origin not in self.settings.origins:
            detail = "pages may not call the gateway: add the origin to [gateway] origins"
            raise Refused(403, "foreign_origin", detail)
        media = _media(call.headers.get("content-type", ""))
        if call.method == "POST" and for_model(call.path) and media != JSON:
            raise Refused(415, "no_json", "content-type must be application/json")
        key = self.settings.key
        given = [credential(one, call.headers.get(one, "")) for one in (*CREDENTIALS, KEY_HEADER)]
        if key and not any(equal(one, key) for one in given):
            detail = "the key of the gateway is missing or wrong: send it as the key of the API"
            raise Refused(401, "wrong_key", detail)

    def _target(self, call: Arrived) -> Target:
        origin = call.headers.get(TARGET_HEADER, "")
        found = target_of(self.settings.providers, call.path, call.query, origin)
        if found is None:
            known = ", ".join(f"/{one.name}/" for one in self.settings.providers)
            detail = f"no declared provider here: paths begin with /v1/ or one of {known}"
            raise Refused(404, "unknown_provider", detail)
        return found

    # The answer.

    async def _answer(self, arrived: Arrived, body: bytes, target: Target, send: Send) -> None:
        headers = outgoing_headers(arrived.headers.items(), self.settings.key, target[0])
        request = Outgoing(arrived.method, target, headers, body)
        run = self._run(arrived)
        call: Call | None = None
        if run is not None:
            call = await _call(request, arrived.headers.get("content-type", ""))
            if (content := run.asked_anew(call, body)) is not None:
                request = request._replace(body=content)
                call = await _call(request, arrived.headers.get("content-type", ""))
                call = msgspec.structs.replace(call, anew=True)
            if run.over:
                run.exchange.off_tape[call.name] += 1
                self._off_tape("run_over", arrived)
                run = None

        def perform() -> AsyncGenerator[Item, None]:
            return fetch(self.session, request, pieces=run is None)

        items = run.call(call, perform) if run is not None and call is not None else perform()
        async with aclosing(items):
            try:
                first: Any = await anext(items)
                if run and call:
                    head = read_head(run, call, first)
                else:
                    head = msgspec.json.decode(first, type=HttpHead)
                whole = None
                if _media(dict(head.headers).get("content-type", "")) in _WHOLE:
                    whole = b"".join([item async for item in items if isinstance(item, bytes)])
            except (Control, CallFailed, httpx.TransportError) as error:
                played = bool(run and call and run.played(call))
                raise refusal_of(error, played=played) from error
            if whole is not None:
                response = Response(whole, head.status)
                response.raw_headers += _raw(head.headers)
                await respond(send, response)
            else:
                entry = next(one.entry for one in run.plays if one.call is call) if run else None
                await _stream(send, head, items, entry)

    def _run(self, arrived: Arrived) -> Run | None:
        """Return the run of a call, None where it goes off the tape.

        Raises `Refused` for an id of ours whose run is gone, unless that was live to its end:
        what a shadow asks for belatedly must not be bought.
        """
        if arrived.run == TRIAL and not self.settings.replays:
            return None
        if not arrived.run:
            self._off_tape("no_run", arrived)
            return None
        if (run := self.runs.find(arrived.run)) is not None:
            return run
        performs = self.runs.performs(arrived.run)
        if not performs and (arrived.how != "trace" or performs is not None):
            detail = "the run that this call names is over, or of another process"
            raise Refused(410, "unknown_run", detail)
        self._off_tape("run_over" if performs else "unknown_trace", arrived)
        return None

    def _off_tape(self, reason: str, arrived: Arrived) -> None:
        if not self.runs.uncorrelated[reason]:
            log.warning("call off the tape reason=%s path=%s", reason, arrived.path)
        self.runs.uncorrelated[reason] += 1
        if self.settings.replays:
            raise Refused(409, "no_run", "a replay performs nothing: send the run's headers on")


async def _call(request: Outgoing, media: str) -> Call:
    target = request.target[1].raw_path_qs
    if len(request.body) > _LARGE:
        return await asyncio.to_thread(http_call, request.method, target, media, request.body)
    return http_call(request.method, target, media, request.body)


def _media(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


async def _stream(
    send: Send, head: HttpHead, items: AsyncGenerator[Item, None], entry: Entry | None
) -> None:
    """Send an answer as it comes: what is on the tape together goes out together.

    One that breaks off leaves the response without its end.
    """
    start = {"status": head.status, "headers": _raw(head.headers)}
    await send({"type": "http.response.start", **start})
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


def _raw(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]
