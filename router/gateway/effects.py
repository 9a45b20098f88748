"""The effect API: what remote stacks do to the world themselves, on the tape, and done once.

A stack asks before each effect. It is told to perform it, and reports what came of it, or gets what
came of it when another run of the exchange, or this one, performed it.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.utils import deep_dict_update
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.errors import CutoverError, EffectFailed
from contract.external import (
    IN_DOUBT,
    ExternalError,
    ExternalResult,
    ExternalUpdate,
)
from contract.operations import EXTERNAL_READ, EXTERNAL_RUN
from effects.tape import Lease, TapeSession
from router.gateway.correlation import calling_session
from router.gateway.entrance import Entrance, outside
from router.gateway.openapi import effects_document
from router.gateway.refusals import GatewayRefused, refusal_of
from router.http.endpoints import send_whole
from router.serving.performed import MOST_CHARACTERS, PlayedEffect, ask

_JSON: Final = (b"content-type", b"application/json")
_REMEMBERED: Final = 4_096
"""Leases that have ended and are told apart from ones that never were."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_CHARACTERS)]


class EffectRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stack is about to do, in at most so many `seconds` from one sign of life to the next.

    What is `read_only` may be done again. With a `key` an effect whose outcome is not known may be
    performed once more.
    """

    effect: Name
    arguments: Any = None
    read_only: bool = False
    key: Annotated[str, msgspec.Meta(max_length=MOST_CHARACTERS)] = ""
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

    def updates(self) -> list[ExternalUpdate]:
        """Return it as items of the tape."""
        updates = [ExternalUpdate(item) for item in self.items]
        if self.error is not None:
            updates.append(ExternalUpdate(result=ExternalResult(error=self.error)))
        elif self.result is not msgspec.UNSET:
            updates.append(ExternalUpdate(result=ExternalResult(self.result)))
        return updates


_decode_request: Final = msgspec.json.Decoder(EffectRequest).decode
_decode_report: Final = msgspec.json.Decoder(Report).decode


class EffectApi:
    """Begins effects and takes reports of them, for exchanges that are open here."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._leases: dict[str, tuple[Lease, asyncio.Task[Any]]] = {}

    async def begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell a stack to perform an effect, or what came of it."""
        await self._entrance.serve(scope, receive, send, self._begin)

    async def report(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a report; it is on the tape, and in the journal, when it is answered."""
        here = scope["path_params"]["lease"] in self._leases
        await self._entrance.serve(scope, receive, send, self._report, here=here)

    async def _begin(self, scope: Scope, body: bytes, send: Send) -> None:
        asked = _read(_decode_request, body)
        session = calling_session(self._entrance.exchanges, scope)
        if session is None:
            self._entrance.admit_outside()
            raise outside()
        try:
            answer = await self._ask(session, asked)
        except EffectFailed as error:
            raise unperformed(error) from error
        except CutoverError as error:
            raise refusal_of(error) from error
        await send_whole(send, 200, (_JSON,), msgspec.json.encode(answer))

    async def _ask(self, session: TapeSession, asked: EffectRequest) -> Perform | Play:
        operation = EXTERNAL_READ if asked.read_only else EXTERNAL_RUN
        longest = self._entrance.exchanges.settings().writes.of(operation, b"")
        seconds = min(asked.seconds, longest)
        told = await ask(
            session,
            asked.effect,
            asked.arguments,
            read_only=asked.read_only,
            key=asked.key,
            seconds=seconds,
        )
        if isinstance(told, PlayedEffect):
            return Play(told.items, told.result.value, told.result.error)
        # Awaited to its end also where the caller performs it: as long the run waits for the world.
        reading = asyncio.get_running_loop().create_task(_outcome(session, told), name="effect")
        reading.add_done_callback(_retrieved)
        told.id = secrets.token_hex(16)
        self._remember(told, reading)
        return Perform(told.id, seconds)

    def _remember(self, lease: Lease, reading: asyncio.Task[Any]) -> None:
        self._leases[lease.id] = lease, reading
        if len(self._leases) > _REMEMBERED:
            over = (name for name, (one, _) in self._leases.items() if one.ended)
            self._leases.pop(next(over, ""), None)

    async def _report(self, scope: Scope, body: bytes, send: Send) -> None:
        report = _read(_decode_report, body)
        if report.error is not None and report.result not in (msgspec.UNSET, None):
            why = "an effect has a result or an error, not both"
            raise GatewayRefused(400, "invalid_request", why)
        found = self._leases.get(scope["path_params"]["lease"])
        if found is None:
            why = "no effect is performed under this lease"
            raise GatewayRefused(404, "unknown_lease", why)
        lease, reading = found
        if lease.ended == "reported":
            raise GatewayRefused(409, "effect_reported", "this effect has been reported already")
        if lease.ended:
            why = "it was not reported in time: the effect is in doubt"
            raise GatewayRefused(410, "lease_over", why)
        if lease.take(report.updates()):
            await lease.settle()
            await asyncio.wait({reading})
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


async def _outcome(session: TapeSession, lease: Lease) -> None:
    if lease.entry is not None:
        await session.outcome(lease.entry)


def _retrieved(reading: asyncio.Task[Any]) -> None:
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
        raise GatewayRefused(400, "invalid_request", f"the body is not valid: {error}") from None
