"""The ports of a run and the calls on the live ports, both from the table of operations."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from contract.operations import OPERATIONS, Operation
from contract.ports import Effects

Call = Callable[[Operation, str, Any], Awaitable[Any]]
Stream = Callable[[Operation, str, Any], AsyncIterator[Any]]


class NodeTimes:
    """Collects how long a run's nodes took, in microseconds, summed by name."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    @contextmanager
    def node(self, name: str) -> Iterator[None]:
        """Time one node."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            took = (time.perf_counter_ns() - began) // 1000
            self.spent[name] = self.spent.get(name, 0) + took


def taped(call: Call, stream: Stream, trace: NodeTimes, *, rehearsal: bool = False) -> Effects:
    """Bundle the ports of one run, whose every method ends in `call` or `stream`."""
    ports: Any = {name: port(call, stream) for name, port in _PORTS.items()}
    return Effects(**ports, trace=trace, rehearsal=rehearsal)


def stream_live(
    live: Effects, operation: Operation, site: str, arguments: Any
) -> AsyncIterator[Any]:
    """Perform an operation that streams."""
    items: AsyncIterator[Any] = getattr(getattr(live, operation.port), operation.name)(
        site, arguments
    )
    return items


async def call_live(live: Effects, operation: Operation, site: str, arguments: Any) -> Any:
    """Perform an operation that has one result, and return that as an item of the tape."""
    method = getattr(getattr(live, operation.port), operation.name)
    if operation.whole:
        value = await method(site, arguments)
    else:
        fields = msgspec.structs.asdict(arguments)
        named = {}
        for name in operation.named:
            named[name] = fields.pop(name)
        value = await method(site, *fields.values(), **named)
    if operation.result == "":
        return value
    return (operation.wrap or operation.item)(value)


class _Port:
    __slots__ = ("_call", "_stream")

    def __init__(self, call: Call, stream: Stream) -> None:
        self._call = call
        self._stream = stream


def _method(operation: Operation) -> Callable[..., Any]:
    """Make the method of a run's port that stands for an operation."""
    if operation.streams:
        return lambda self, site, arguments: self._stream(operation, site, arguments)
    whole, pack, result = operation.whole, operation.arguments, operation.result

    async def method(self: Any, site: str, *args: Any, **named: Any) -> Any:
        arguments = args[0] if whole else pack(*args, **named)
        item = await self._call(operation, site, arguments)
        if not result:
            return item if result == "" else None
        return getattr(item, result)

    return method


def _port(name: str) -> type[_Port]:
    methods = {op.name: _method(op) for op in OPERATIONS.values() if op.port == name}
    return type(f"Taped{name.capitalize()}", (_Port,), {"__slots__": (), **methods})


_PORTS: Final = {name: _port(name) for name in dict.fromkeys(port for port, _ in OPERATIONS)}
