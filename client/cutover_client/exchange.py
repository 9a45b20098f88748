"""The exchange that this task or thread works for, and how effects are asked for and reported."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from cutover_client.calls import Call, GatewayError, Perform, Played, Report
from cutover_client.requests import Answer, Head, HttpRequest, Send


class Exchange(Protocol):
    """One request that cutover sent, as one of its runs: over HTTP, or in the router's process.

    The second method of each pair is for functions that block.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that name the exchange and the run."""
        ...

    async def begin(self, call: Call) -> Perform | Played | None:
        """Ask whether to perform a call; None where it belongs to no exchange.

        Raises `GatewayError`: then nothing is to be performed.
        """
        ...

    def begin_blocking(self, call: Call) -> Perform | Played | None:
        """Ask as `begin` does."""
        ...

    async def report(self, told: Perform, report: Report) -> None:
        """Report what came of an effect; raises nothing, as it has happened."""
        ...

    def report_blocking(self, told: Perform, report: Report) -> None:
        """Report as `report` does."""
        ...

    def alive(self, told: Perform) -> AbstractAsyncContextManager[None]:
        """Return a block in which an effect is performed."""
        ...

    def alive_blocking(self, told: Perform) -> AbstractContextManager[None]:
        """Return a block in which an effect is performed in this thread."""
        ...

    def answer(self, request: HttpRequest, send: Send) -> Answer | None:
        """Answer a call of the model: with what `send` gets or, in other runs, has got.

        None where it is to be sent as always: over HTTP it is the gateway that has it on the tape.
        """
        ...

    def answer_blocking(
        self, request: HttpRequest, send: Send
    ) -> Generator[Head | bytes, None, None] | None:
        """Answer as `answer` does."""
        ...


class RunExchange(Exchange, Protocol):
    """The exchange of a flow in the router's process."""

    def answer(self, request: HttpRequest, send: Send) -> Answer:
        """Answer a call of the model from the tape."""
        ...

    def answer_blocking(
        self, request: HttpRequest, send: Send
    ) -> Generator[Head | bytes, None, None]:
        """Answer as `answer` does."""
        ...

    @property
    def conversation(self) -> str | None:
        """The conversation that the request belongs to."""
        ...

    async def ask(self, question: Any) -> str:
        """Ask a person, in JSON; returns the id of the question, stored with the tape so far."""
        ...

    async def answered(self, question_id: str) -> Any:
        """Return the answer; without one the run ends here, and is run again once there is one."""
        ...

    def mismatch(self, effect: str) -> GatewayError:
        """Return the error of a call that a resumed run makes, and did not make before."""
        ...


_current: ContextVar[Exchange | None] = ContextVar("cutover_exchange", default=None)
current_exchange = _current.get
"""Returns the exchange that this task or thread works for; None outside of any."""


@contextmanager
def bound(exchange: Exchange | None) -> Iterator[None]:
    """Work for an exchange in a block, and in the tasks and threads that are begun there."""
    token = _current.set(exchange)
    try:
        yield
    finally:
        _current.reset(token)


def correlation_headers() -> dict[str, str]:
    """Return the headers that name the exchange, for calls of the model; {} outside of any."""
    exchange = _current.get()
    return {} if exchange is None else dict(exchange.headers)
