"""Meddling: a flow wrapped so that its events or its effects come out otherwise."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from contract.flow import Event, Flow, Request
from contract.model import Chunk, ModelCall
from contract.ports import Effects

Meddle = Callable[[Flow], Flow]
Rewrite = Callable[[list[Event], Event], Iterable[Event]]
"""Returns what replaces an event; gets the events the stack has produced before it."""


def rewritten(rewrite: Rewrite) -> Meddle:
    """Let other events stand for those of a flow."""

    def meddle(flow: Flow) -> Flow:
        async def meddled(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            before: list[Event] = []
            produced = cast("AsyncGenerator[Event, None]", flow(request, effects))
            async with aclosing(produced) as events:
                async for event in events:
                    for other in rewrite(before, event):
                        yield other
                    before.append(event)

        return meddled

    return meddle


def through(**ports: Callable[[Any, Effects], object]) -> Meddle:
    """Let a flow reach the world through ports of ours, each made of the port it stands for."""

    def meddle(flow: Flow) -> Flow:
        def meddled(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            changed = {name: make(getattr(effects, name), effects) for name, make in ports.items()}
            return flow(request, replace(effects, **cast("dict[str, Any]", changed)))

        return meddled

    return meddle


class Meddled:
    """A port some of whose operations were replaced; all others are its own."""

    def __init__(self, port: object, **operations: Callable[..., Awaitable[object]]) -> None:
        self._port = port
        self._operations = operations

    def __getattr__(self, name: str) -> Any:
        return self._operations.get(name) or getattr(self._port, name)


class AskedOtherwise:
    """A model that is asked something else than the flow asked."""

    def __init__(self, model: Any, change: Callable[[ModelCall], ModelCall]) -> None:
        self._model = model
        self._change = change

    def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Ask the changed question."""
        return cast("AsyncIterator[Chunk]", self._model.stream(site, self._change(call)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def asking(change: Callable[[ModelCall], ModelCall]) -> Meddle:
    """Ask the model something else."""
    return through(model=lambda model, _: AskedOtherwise(model, change))
