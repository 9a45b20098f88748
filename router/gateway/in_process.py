"""The exchange of a run, for code in this process that uses `cutover_client`: no HTTP is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from contract.errors import CutoverError, EffectFailed, Fenced, TapeCut, TapeMiss
from contract.external import IN_DOUBT, ExternalError, ExternalResult, ExternalUpdate
from contract.human import OpenQuestion
from cutover_client.calls import ERRORS, Call, GatewayError, Perform, Played, Report
from cutover_client.exchange import bound
from cutover_client.requests import Answer, Head, HttpRequest, Send
from effects.tape import Lease, TapeSession
from router.gateway.client_calls import answered, refused
from router.gateway.refusals import GatewayRefused
from router.serving.performed import MOST_CHARACTERS, PlayedEffect, ask
from router.serving.run import RunRequest
from router.stack import EXCHANGE_HEADER, ROLE_HEADER

_Result = TypeVar("_Result")

_MOST_CAUSES: Final = 32
"""Links of a chain of errors that are followed."""
_SITE: Final = "interrupt"
"""Where a run asks a person."""


@dataclass(frozen=True, slots=True)
class _Performing(Perform):
    """An effect that the caller performs; in this process its lease needs no name."""

    held: Lease


class RunExchange:
    """An exchange, as one of its runs, on the loop that the run is on.

    Coroutines may be awaited on any loop. Methods that block wait for this loop: in its own thread
    they are refused, as they would wait for ever.
    """

    def __init__(self, request: RunRequest, session: TapeSession) -> None:
        self.headers: Mapping[str, str] = {
            EXCHANGE_HEADER.decode(): request.exchange,
            ROLE_HEADER.decode(): request.role,
        }
        self._request = request
        self._session = session
        self._loop = asyncio.get_running_loop()

    async def begin(self, call: Call) -> Perform | Played | None:
        """Ask the tape whether to perform a call; raises `GatewayError`."""
        if asyncio.get_running_loop() is self._loop:
            return await self._begin(call)
        return await self._from_loop(self._begin(call))

    def begin_blocking(self, call: Call) -> Perform | Played | None:
        """Ask as `begin` does."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise _blocks(call.effect, "a function")
        return self._from_thread(self._begin(call))

    async def report(self, told: Perform, report: Report) -> None:
        """Put on the tape what came of an effect; returns once it is there."""
        if asyncio.get_running_loop() is self._loop:
            await self._report(told, report)
        else:
            await self._from_loop(self._report(told, report))

    def report_blocking(self, told: Perform, report: Report) -> None:
        """Report as `report` does."""
        self._from_thread(self._report(told, report))

    def alive(self, told: Perform) -> _Alive:
        """Return a block in which an effect is in doubt where what performs it is cancelled."""
        return _Alive(self, told)

    alive_blocking = alive

    def abandon(self, told: Perform) -> None:
        """Note, from any thread, that an effect will not be reported."""
        self._loop.call_soon_threadsafe(self._abandon, told)

    def answer(self, request: HttpRequest, send: Send) -> Answer:
        """Answer a call of the model from the tape; on this loop `send` gets the answer."""
        answer = answered(self._session, request, send)
        if asyncio.get_running_loop() is self._loop:
            return answer
        return self._answer_from_loop(answer)

    def answer_blocking(
        self, request: HttpRequest, send: Send
    ) -> Generator[Head | bytes, None, None]:
        """Answer as `answer` does."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                error = _blocks(f"{request.method} {request.path}", "a client")
                yield from refused(GatewayRefused(400, error.code, str(error)), error)
                return
        answer = answered(self._session, request, send)
        try:
            while (piece := self._from_thread(_next(answer))) is not None:
                yield piece
        finally:
            self._from_thread(answer.aclose())

    async def _answer_from_loop(self, answer: Answer) -> Answer:
        try:
            while (piece := await self._from_loop(_next(answer))) is not None:
                yield piece
        finally:
            await self._from_loop(answer.aclose())

    @property
    def conversation(self) -> str | None:
        """The conversation that the request belongs to."""
        request = self._request.request
        return self._request.spec.conversation(request.body, request.session)

    async def ask(self, question: Any) -> str:
        """Ask a person, in JSON; returns the id of the question."""
        pausing = self._request.spec.pausing
        if pausing is None:
            code = "no_pause"
            why = f"flow {self._request.spec.name!r} declares no pause"
            raise GatewayError(code, why)
        asked = OpenQuestion(pausing.form(question), "interrupt", self.conversation)
        return await self._session.effects().human.open(_SITE, asked)

    async def answered(self, question_id: str) -> Any:
        """Return the answer; raises `Paused` while there is none."""
        answer = await self._session.effects().human.answer(_SITE, question_id)
        pausing = self._request.spec.pausing
        return None if pausing is None else pausing.value(answer)

    def mismatch(self, effect: str) -> GatewayError:
        """Return the error of a call that a resumed run makes, and did not make before."""
        missed = TapeMiss(f"external {effect!r}", None, code="resume_mismatch")
        error = _refusal(effect, missed)
        error.__cause__ = missed
        return error

    async def _from_loop(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _from_thread(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _begin(self, call: Call) -> Perform | Played:
        if not 0 < len(call.effect) <= MOST_CHARACTERS or len(call.key) > MOST_CHARACTERS:
            code, most = "invalid_request", MOST_CHARACTERS
            raise GatewayError(code, f"a name has 1 to {most} characters, a key up to as many")
        try:
            told = await ask(
                self._session,
                call.effect,
                call.arguments,
                read_only=call.read_only,
                key=call.key,
                seconds=None,
            )
        except (EffectFailed, TapeMiss, Fenced, TapeCut) as error:
            raise _refusal(call.effect, error) from error
        if isinstance(told, PlayedEffect):
            return _played(told)
        self._session.waiting += 1  # for the world, until it is reported
        return _Performing("", call.seconds, told)

    async def _report(self, told: Perform, report: Report) -> None:
        if not isinstance(told, _Performing):
            raise TypeError(type(told).__name__)
        self._session.waiting -= 1
        if told.held.ended:
            return  # its time was over: it is in doubt
        told.held.take(_updates(report))
        await told.held.settle()
        self._session.performed()

    def _abandon(self, told: Perform) -> None:
        if isinstance(told, _Performing):
            self._session.waiting -= 1
            told.held.abandon()


class _Alive:
    """A block, awaited or not, in which a caller performs an effect."""

    __slots__ = ("_exchange", "_told")

    def __init__(self, exchange: RunExchange, told: Perform) -> None:
        self._exchange = exchange
        self._told = told

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Any other error is reported.
        if kind is not None and not issubclass(kind, Exception | GeneratorExit):
            self._exchange.abandon(self._told)

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.__exit__(kind)


def _updates(report: Report) -> list[ExternalUpdate]:
    updates = [ExternalUpdate(item) for item in report.items]
    error = None if report.error is None else ExternalError(*report.error)
    return [*updates, ExternalUpdate(result=ExternalResult(report.result, error))]


def _played(told: PlayedEffect) -> Played:
    error = told.result.error
    failed = None if error is None else (error.type, error.message)
    return Played(told.items, told.result.value, failed)


async def _next(answer: Answer) -> Head | bytes | None:
    return await anext(answer, None)


def _blocks(effect: str, by: str) -> GatewayError:
    why = (
        f"{effect!r} is called by {by} that blocks, on the router's loop: call it in a thread "
        "(await asyncio.to_thread(...)), or without blocking (async def, AsyncOpenAI)"
    )
    code = "blocks_the_loop"
    return GatewayError(code, why)


def _refusal(effect: str, error: CutoverError) -> GatewayError:
    match error:
        case EffectFailed(fault=fault) if fault.code in {IN_DOUBT, "deadline"}:
            code, why = IN_DOUBT, "it was begun before, and may have happened"
        case EffectFailed(fault=fault):
            code, why = fault.code, "it could not be recorded"
        case TapeMiss():
            code, why = error.code, "this run plays a tape, and the effect is not on it"
        case _:
            code, why = "exchange_over", "the run was replaced, or its exchange has ended"
    return ERRORS.get(code, GatewayError)(code, f"{effect!r}: {why}")


@contextmanager
def client_bound(request: RunRequest, session: TapeSession) -> Iterator[None]:
    """Let code of a run that uses `cutover_client` work for the run's exchange.

    Where an error of the client, or of an SDK that uses its transport, ends the run, the tape's own
    error behind it does.
    """
    with bound(RunExchange(request, session)):
        try:
            yield
        except Exception as error:
            if (own := _tape_error(error)) is None or own is error:
                raise
            raise own from None


def _tape_error(error: BaseException) -> CutoverError | None:
    """Return the tape's error behind one of a client, or of an SDK that got a response."""
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None or isinstance(found, CutoverError):
            return found
        response = getattr(found, "response", None)
        told = getattr(response, "extensions", {}).get("cutover")
        found = told or found.__cause__
    return None
