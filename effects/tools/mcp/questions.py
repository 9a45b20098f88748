"""Calls whose server asks back before it answers: rounds, whatever version of MCP it speaks.

A server of a version before 2026-07-28 sends its question as a request, and the call stays open.
Here that question ends a round by an `InputRequiredResult`, as newer servers do themselves; the
next round of the call brings the answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from mcp import MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    ErrorData,
    InputRequiredResult,
    InputResponse,
)
from pydantic import BaseModel

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 600.0
"""How long a server that has asked is held up; then its call is cancelled."""
MAX_OPEN: Final = 256
"""Calls of one server that wait for an answer; beyond, the oldest is cancelled."""

Perform = Callable[[ProgressFnT], Awaitable[BaseModel]]
"""Makes a call whose progress is reported to its argument."""

_CALL: ContextVar[_Call | None] = ContextVar("cutover_mcp_call", default=None)


class Questions:
    """The calls of one session that are open, and what their server asks.

    `attributed`: a question arrives in the context of its call, as over HTTP. Otherwise it belongs
    to the one call there is, and is refused where there are several.
    """

    def __init__(self, *, attributed: bool) -> None:
        self._attributed = attributed
        self._calls: set[_Call] = set()
        self._waiting: dict[str, _Call] = {}
        self.others = 0
        """Calls under way that nobody can be asked about."""

    async def round(
        self,
        perform: Perform,
        report: ProgressFnT,
        state: str | None,
        answers: Mapping[str, InputResponse] | None,
    ) -> BaseModel:
        """Begin a call, or go on with one that has asked; return its result or its question.

        Cancelling the round cancels the call. Raises `MCPError`.
        """
        if state is None:
            call = _Call(perform)
            self._calls.add(call)
            call.work.add_done_callback(lambda _: self._forget(call))
        elif (found := self._waiting.pop(state, None)) is not None:
            call = found
            call.answer(answers or {})
        else:
            raise MCPError(INVALID_PARAMS, "the server no longer waits for this answer")
        try:
            result = await call.round(report)
        except BaseException:
            call.work.cancel()
            raise
        if isinstance(result, InputRequiredResult):
            self._wait(call)
        return result

    def drop(self, state: str | None) -> None:
        """Cancel a call that nobody will answer."""
        if state is not None and (call := self._waiting.pop(state, None)) is not None:
            call.work.cancel()

    def close(self) -> None:
        """Cancel what is open."""
        for call in list(self._calls):
            call.work.cancel()

    async def elicit(self, context: Any, params: ElicitRequestParams) -> Any:
        """Pass on a question to the user."""
        return await self._ask(ElicitRequest(params=params), context)

    async def sample(self, context: Any, params: CreateMessageRequestParams) -> Any:
        """Pass on a question to the model of the client."""
        return await self._ask(CreateMessageRequest(params=params), context)

    async def _ask(self, request: ElicitRequest | CreateMessageRequest, context: Any) -> Any:
        call = _CALL.get()
        if call is None and not self._attributed and len(self._calls) == 1 and not self.others:
            (call,) = self._calls
        if call is None:
            log.warning("question %r of a server is refused", context.request_id)
            return ErrorData(code=INVALID_REQUEST, message="there is nobody to ask for this call")
        return await call.ask(request)

    def _wait(self, call: _Call) -> None:
        self._waiting[call.state] = call
        asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, call, call.asked)
        if len(self._waiting) > MAX_OPEN:
            self.drop(next(iter(self._waiting)))

    def _expire(self, call: _Call, asked: int) -> None:
        if call.asked == asked and self._waiting.get(call.state) is call:
            self.drop(call.state)

    def _forget(self, call: _Call) -> None:
        self._calls.discard(call)
        self._waiting.pop(call.state, None)
        if not call.work.cancelled():
            call.work.exception()  # of a call that ended with nobody waiting


class _Call:
    """A call that is under way, over its rounds; `asked` counts its questions."""

    def __init__(self, perform: Perform) -> None:
        self.state = f"cutover-{secrets.token_hex(16)}"
        self.asked = 0
        self._report: ProgressFnT | None = None
        self._changed = asyncio.Event()
        self._open: dict[str, tuple[ElicitRequest | CreateMessageRequest, asyncio.Future[Any]]] = {}
        token = _CALL.set(self)
        try:
            work = self._work(perform)
            self.work = asyncio.get_running_loop().create_task(work, name="mcp call")
        finally:
            _CALL.reset(token)
        self.work.add_done_callback(lambda _: self._changed.set())

    async def _work(self, perform: Perform) -> BaseModel:
        return await perform(self._progress)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._report is not None:
            await self._report(progress, total, message)

    async def round(self, report: ProgressFnT) -> BaseModel:
        """Wait until it has ended, or asks."""
        self._report = report
        await self._changed.wait()
        self._changed.clear()
        if self.work.done():
            return self.work.result()
        requests = {key: request for key, (request, _) in self._open.items()}
        return InputRequiredResult(input_requests=dict(requests), request_state=self.state)

    async def ask(self, request: ElicitRequest | CreateMessageRequest) -> Any:
        """Ask whoever makes the call; return the answer."""
        self.asked += 1
        key = f"question-{self.asked}"
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[key] = request, answered
        self._changed.set()
        try:
            return await answered
        finally:
            self._open.pop(key, None)

    def answer(self, answers: Mapping[str, InputResponse]) -> None:
        """Take the answers of the next round."""
        for key, answer in answers.items():
            if key in self._open and not self._open[key][1].done():
                self._open[key][1].set_result(answer)
        if not self.work.done() and any(not one.done() for _, one in self._open.values()):
            self._changed.set()  # it still asks
