"""The effect API: what remote stacks do to the world themselves, on the tape, and done once.

A stack asks before each effect. It is told to perform it, and reports what came of it, or gets what
came of it when another run of the exchange, or this one, performed it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import FastAPI
from fastapi.utils import deep_dict_update
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.errors import CutoverError, EffectFailed, Fault
from contract.external import (
    IN_DOUBT,
    ExternalError,
    ExternalResult,
    ExternalUpdate,
    PerformedCall,
)
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN
from effects.loop_time import limit
from effects.tape import TapeSession
from router.gateway.correlation import calling_session
from router.gateway.entrance import Entrance
from router.gateway.openapi import effects_document
from router.gateway.refusals import GatewayRefused, refusal_of
from router.http.endpoints import send_whole

_JSON: Final = (b"content-type", b"application/json")
_REMEMBERED: Final = 4_096
"""Leases that have ended and are told apart from ones that never were."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class EffectRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stack is about to do, in at most so many `seconds` from one sign of life to the next.

    What is `read_only` may be done again. With a `key` an effect whose outcome is not known may be
    performed once more.
    """

    effect: Name
    arguments: Any = None
    read_only: bool = False
    key: Annotated[str, msgspec.Meta(max_length=200)] = ""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 10.0


class Perform(msgspec.Struct, frozen=True, tag="perform", tag_field="do"):
    """The answer to a stack that is to perform its effect, and report by the lease."""

    lease: str
    seconds: float


class Play(msgspec.Struct, frozen=True, tag="play", tag_field="do"):
    """The answer to a stack that gets what came of it: values it streamed, and a result or error.

    `error` is null where there is none.
    """

    items: list[Any]
    result: Any
    error: ExternalError | None


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stack reports: values an effect streams and, last, its result or its error.

    Neither result nor error: it goes on.
    """

    items: list[Any] = []
    result: Any = msgspec.UNSET
    error: ExternalError | None = None


_decode_request: Final = msgspec.json.Decoder(EffectRequest).decode
_decode_report: Final = msgspec.json.Decoder(Report).decode


class Lease:
    """The time in which a stack performs an effect; `begun` once it is to do so."""

    def __init__(self, seconds: float) -> None:
        self.id = secrets.token_hex(16)
        self.seconds = seconds
        self.begun = asyncio.Event()
        self.ended: Literal["", "reported", "expired"] = ""
        self.reading: asyncio.Task[Play] | None = None
        self._reports: asyncio.Queue[Report] = asyncio.Queue()

    def take(self, report: Report) -> None:
        """Take a report; raises `GatewayRefused` where the lease has ended."""
        if self.ended == "reported":
            raise GatewayRefused(409, "effect_reported", "this effect has been reported already")
        if self.ended:
            why = "it was not reported in time: the effect is in doubt"
            raise GatewayRefused(410, "lease_over", why)
        if report.result is not msgspec.UNSET or report.error is not None:
            self.ended = "reported"
        self._reports.put_nowait(report)

    async def updates(self) -> AsyncIterator[ExternalUpdate]:
        """Yield what is reported, the result last; fault `effect_in_doubt` after its seconds."""
        self.begun.set()
        try:
            while True:
                report = await self._next()
                for item in report.items:
                    yield ExternalUpdate(item)
                if report.error is not None:
                    yield ExternalUpdate(result=ExternalResult(error=report.error))
                elif report.result is not msgspec.UNSET:
                    yield ExternalUpdate(result=ExternalResult(report.result))
        finally:
            self.ended = self.ended or "expired"

    async def _next(self) -> Report:
        with suppress(TimeoutError):
            async with limit(self.seconds):
                return await self._reports.get()
        raise EffectFailed(Fault(IN_DOUBT, data={"seconds": self.seconds}))


class EffectApi:
    """Begins effects and takes reports of them, for exchanges that are open here."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._leases: dict[str, Lease] = {}

    async def begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell a stack to perform an effect, or what came of it."""
        await self._entrance.serve(scope, receive, send, self._begin)

    async def report(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a report; it is on the tape, and in the journal, when it is answered."""
        here = scope["path_params"]["lease"] in self._leases
        await self._entrance.serve(scope, receive, send, self._report, here=here)

    async def _begin(self, scope: Scope, body: bytes, send: Send) -> None:
        asked = _read(_decode_request, body)
        session = calling_session(self._entrance.router, scope)
        if session is None:
            raise GatewayRefused(404, "unknown_exchange", "no such exchange is open here")
        try:
            answer = await self._obtain(session, asked)
        except CutoverError as error:
            raise refusal_of(error) from error
        await send_whole(send, 200, (_JSON,), msgspec.json.encode(answer))

    async def _obtain(self, session: TapeSession, asked: EffectRequest) -> Perform | Play:
        """Play an effect, or let the caller perform it; with a key again where it is in doubt."""
        while True:
            before = len(session.plays)
            try:
                return await self._once(session, asked)
            except EffectFailed as error:
                play = session.plays[before]
                again = asked.key and error.fault.code == IN_DOUBT and play.how == "exact"
                if not again:
                    raise unperformed(error) from error

    async def _once(self, session: TapeSession, asked: EffectRequest) -> Perform | Play:
        operation = EXTERNAL_READ if asked.read_only else EXTERNAL_RUN
        longest = self._entrance.router.settings().writes.of(operation, b"")
        lease = Lease(min(asked.seconds, longest))
        call = PerformedCall.made(asked.arguments, asked.key, lease.updates)
        updates = session.stream(operation, asked.effect, call)
        # Read to its end also where the caller performs it: as long the run waits for the world.
        reading = asyncio.get_running_loop().create_task(_played(updates), name="effect")
        begun = asyncio.get_running_loop().create_task(lease.begun.wait(), name="effect begins")
        try:
            await asyncio.wait({reading, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
            if not lease.begun.is_set():
                reading.cancel()
        if not lease.begun.is_set():
            return await reading
        self._remember(lease)
        lease.reading = reading
        reading.add_done_callback(_retrieved)
        return Perform(lease.id, lease.seconds)

    def _remember(self, lease: Lease) -> None:
        self._leases[lease.id] = lease
        if len(self._leases) > _REMEMBERED:
            over = (name for name, one in self._leases.items() if one.ended)
            self._leases.pop(next(over, ""), None)

    async def _report(self, scope: Scope, body: bytes, send: Send) -> None:
        report = _read(_decode_report, body)
        lease = self._leases.get(scope["path_params"]["lease"])
        if lease is None:
            why = "no effect is performed under this lease"
            raise GatewayRefused(404, "unknown_lease", why)
        lease.take(report)
        if lease.ended and lease.reading is not None:
            await asyncio.wait({lease.reading})
        await send_whole(send, 204, (), b"")


def add_effects(app: FastAPI, effects: EffectApi) -> None:
    """Mount the effect API on an application, also below the address of an exchange."""
    for below in ("", "/exchanges/{exchange}"):
        app.router.routes += [
            Route(f"{below}/effects", _Endpoint(effects.begin), methods=["POST"]),
            Route(f"{below}/effects/{{lease}}", _Endpoint(effects.report), methods=["POST"]),
        ]
    deep_dict_update(app.state.document, effects_document(EffectRequest, Perform | Play, Report))


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An ASGI application, which a route tells from a function of a request by its type."""

    serve: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(scope, receive, send)


async def _played(updates: AsyncIterator[ExternalUpdate]) -> Play:
    items: list[Any] = []
    async for update in updates:
        if (result := update.result) is not None:
            if result.error is not None and result.error.type == IN_DOUBT:
                raise EffectFailed(Fault(IN_DOUBT))
            return Play(items, result.value, result.error)
        items.append(update.value)
    raise EffectFailed(Fault(IN_DOUBT))


def _retrieved(reading: asyncio.Task[Play]) -> None:
    """Note that a task's error is known: it is on the tape."""
    if not reading.cancelled():
        reading.exception()


def unperformed(error: EffectFailed) -> GatewayRefused:
    """Return the refusal of an effect with a fault: in doubt, or not to be recorded."""
    if error.fault.code in {IN_DOUBT, "deadline"}:
        why = "this effect has begun, and nobody reported what came of it: it may have happened"
        return GatewayRefused(409, IN_DOUBT, why)
    return GatewayRefused(502, error.fault.code, "the effect could not be recorded")


def _read(decode: Any, body: bytes) -> Any:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayRefused(400, "invalid_request", f"the body is not as due: {error}") from None
