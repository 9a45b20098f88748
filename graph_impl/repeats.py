"""Repetition of a node: the engine executes one that interrupts again, from its first line.

What an execution got from its ports and which events it sent is noted. The next execution counts
its calls from the first again: it receives the same results, and its first events are dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from contract.errors import CutoverError
from contract.operations import OPERATIONS
from contract.ports import Effects

_NOT_EFFECTS = {"trace", "rehearsal"}


class Repetition:
    """The calls and events of one node, over its executions."""

    def __init__(self) -> None:
        self.sent = self.dropping = 0
        self._made: list[_Call] = []
        self._repeatable: list[_Call] = []

    def begin(self) -> None:
        """Begin an execution."""
        self._repeatable, self.dropping, self.sent = list(self._made), self.sent, 0

    def end(self) -> None:
        """Forget the node: it has come to its end."""
        self._made, self.sent = [], 0

    def effects(self, effects: Effects) -> Effects:
        """Return ports that make each call once over all executions."""
        names = {field.name for field in fields(effects)} - _NOT_EFFECTS
        ports: Any = {name: _Port(name, getattr(effects, name), self) for name in names}
        return replace(effects, **ports)

    def call(self, key: tuple[Any, ...], start: Callable[[], Any]) -> _Call:
        """Return an equal call of the execution before, in its order, or a new one."""
        for made in self._repeatable:
            if made.key == key:
                self._repeatable.remove(made)
                return made
        self._made.append(_Call(key, start))
        return self._made[-1]


class _Call:
    """A call of a port, and its results so far."""

    def __init__(self, key: tuple[Any, ...], start: Callable[[], Any]) -> None:
        self.key = key
        self._start = start
        self._results: list[Any] = []
        self._error: CutoverError | None = None
        self._stream: Any = None

    async def result(self) -> Any:
        if self._error is not None:
            raise self._error
        if not self._results:
            try:
                self._results.append(await self._start())
            except CutoverError as error:
                self._error = error
                raise
        return self._results[0]

    async def stream(self) -> AsyncIterator[Any]:
        for result in self._results:
            yield result
        self._stream = self._stream or self._start()
        async for result in self._stream:
            self._results.append(result)
            yield result


class _Port:
    def __init__(self, name: str, port: object, repetition: Repetition) -> None:
        self._name = name
        self._port = port
        self._repetition = repetition

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method, streams = getattr(self._port, operation), OPERATIONS[self._name, operation].streams

        def call(*arguments: Any, **named: Any) -> Any:
            key = (self._name, operation, arguments, named)
            made = self._repetition.call(key, partial(method, *arguments, **named))
            return made.stream() if streams else made.result()

        return call
