"""Wrappers of a flow that change its events or its effects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from contract.flow import Event, Flow, Request
from contract.model import Chunk, ModelCall
from contract.ports import Effects

FlowWrapper = Callable[[Flow], Flow]
Rewrite = Callable[[list[Event], Event], Iterable[Event]]
"""Returns what replaces an event; gets the events the stack has produced before it."""


def rewritten(rewrite: Rewrite) -> FlowWrapper:
    """Return a wrapper that replaces the events of a flow."""

    def wrap(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            before: list[Event] = []
            produced = cast("AsyncGenerator[Event, None]", flow(request, effects))
            async with aclosing(produced) as events:
                async for event in events:
                    for other in rewrite(before, event):
                        yield other
                    before.append(event)

        return wrapped

    return wrap


def with_ports(**ports: Callable[[Any, Effects], object]) -> FlowWrapper:
    """Return a wrapper that replaces ports, each by one made from the original."""

    def wrap(flow: Flow) -> Flow:
        def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            changed = {name: make(getattr(effects, name), effects) for name, make in ports.items()}
            return flow(request, replace(effects, **cast("dict[str, Any]", changed)))

        return wrapped

    return wrap


class ReplacedOperations:
    """A port with some operations replaced."""

    def __init__(self, port: object, **operations: Callable[..., Awaitable[object]]) -> None:
        self._port = port
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return self._operations.get(name) or getattr(self._port, name)


class ChangedCalls:
    """A model whose calls are changed."""

    def __init__(self, model: Any, change: Callable[[ModelCall], ModelCall]) -> None:
        self._model = model
        self._change = change

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Make the changed call."""
        return cast("AsyncIterator[Chunk]", self._model.stream(site, self._change(call)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def changing_calls(change: Callable[[ModelCall], ModelCall]) -> FlowWrapper:
    """Return a wrapper that changes the model calls."""
    return with_ports(model=lambda model, _: ChangedCalls(model, change))
