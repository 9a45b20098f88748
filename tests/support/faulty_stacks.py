"""Stacks that break at a chosen place, in a chosen way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from contract.errors import Fenced
from contract.flow import Event, Flow
from contract.model import ModelCall, ToolCall
from contract.operations import OPERATIONS
from contract.ports import Effects
from contract.stores import Turn

Act = Callable[[Effects], Awaitable[None]]


class Boom(Exception):
    """A bug in a stack; its text must never reach a client."""

    def __init__(self) -> None:
        super().__init__("secret text")


async def crash(_: Effects) -> None:
    """Raise."""
    raise Boom


async def cancelled(_: Effects) -> None:
    """Raise an unexpected exception."""
    raise asyncio.CancelledError


async def hang(_: Effects) -> None:
    """Never come back."""
    await asyncio.get_running_loop().create_future()


def begins_and_hangs(begun: asyncio.Event) -> Flow:
    """Return a flow that waits before its first event, for ever, and tells that it does."""

    async def waiting(_: object, effects: Effects) -> AsyncIterator[Event]:
        begun.set()
        await hang(effects)
        yield cast("Event", None)

    return waiting


def dawdle(seconds: float) -> Act:
    """Do nothing for a while, then go on."""

    async def act(_: Effects) -> None:
        await asyncio.sleep(seconds)

    return act


def deaf(seconds: float) -> Act:
    """Do nothing for a while, and ignore being cancelled."""

    async def act(_: Effects) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                await asyncio.sleep(end - loop.time())
            except asyncio.CancelledError:
                continue

    return act


class Sleeper:
    """Hangs, survives being cancelled, wakes up and goes on calling the ports."""

    def __init__(self, seconds: float) -> None:
        self.refused: list[str] = []
        self._seconds = seconds

    async def __call__(self, effects: Effects) -> None:
        """Hang, then call one port after another."""
        await deaf(self._seconds)(effects)
        for name, call in _calls(effects).items():
            try:
                await call()
            except Fenced:
                self.refused.append(name)

    @property
    def woke(self) -> bool:
        """Whether it came to call anything, and nothing it called was done."""
        return self.refused == ["tool", "model", "store", "id"]


def _calls(effects: Effects) -> dict[str, Callable[[], Awaitable[object]]]:
    turn = Turn(message_id="late", role="assistant", content="late")
    question = ModelCall(model_id="late", messages=())
    return {
        "tool": lambda: effects.tools.run("late", ToolCall("late", "dice", "{}")),
        "model": lambda: anext(effects.model.stream("late", question)),
        "store": lambda: effects.conversations.put("late", turn),
        "id": lambda: effects.ids.new("late"),
    }


def after(flow: Flow, events: int, act: Act) -> Flow:
    """Let a flow break once it has produced so many events (0: before it begins)."""

    async def faulty(request: Any, effects: Effects) -> AsyncIterator[Event]:
        if events == 0:
            await act(effects)
        produced = 0
        async with aclosing(cast("Any", flow(request, effects))) as inner:
            async for event in inner:
                yield event
                produced += 1
                if produced == events:
                    await act(effects)

    return faulty


def instead(flow: Flow, events: int, other: object) -> Flow:
    """Let a flow produce something else as the event after so many, and go on with the rest."""
    return _changed(flow, lambda at, event: cast("Event", other) if at == events else event)


def short(flow: Flow, events: int) -> Flow:
    """Let a flow end after so many events, as if that were all."""
    return _changed(flow, lambda at, event: event if at < events else None)


def mapped(flow: Flow, change: Callable[[Event], Event]) -> Flow:
    """Let a flow say everything in another way."""
    return _changed(flow, lambda _, event: change(event))


def _changed(flow: Flow, change: Callable[[int, Event], Event | None]) -> Flow:
    """Let a flow produce what `change` makes of each event and its position, until that is None."""

    async def faulty(request: Any, effects: Effects) -> AsyncIterator[Event]:
        position = 0
        async with aclosing(cast("Any", flow(request, effects))) as inner:
            async for event in inner:
                changed = change(position, event)
                if changed is None:
                    return
                yield changed
                position += 1

    return faulty


class Tripwire:
    """Counts port calls and breaks at one of them, before it is made or after it is answered."""

    def __init__(self, at: int, act: Act, *, done: bool) -> None:
        self.calls = 0
        self._at = at
        self._act = act
        self._done = done

    def flow(self, flow: Flow) -> Flow:
        """Wire a flow's ports."""

        def wired(request: Any, effects: Effects) -> AsyncIterator[Event]:
            names = {port for port, _ in OPERATIONS} - {"memory", "human"}
            ports = {name: _Wired(name, getattr(effects, name), self, effects) for name in names}
            return flow(request, replace(effects, **cast("dict[str, Any]", ports)))

        return wired

    async def before(self, effects: Effects) -> bool:
        """Count a call; returns whether it is the one to break after."""
        self.calls += 1
        if self.calls - 1 != self._at:
            return False
        if not self._done:
            await self._act(effects)
        return self._done

    async def trip(self, effects: Effects) -> None:
        """Break."""
        await self._act(effects)


class _Wired:
    def __init__(self, name: str, port: object, wire: Tripwire, effects: Effects) -> None:
        self._name = name
        self._port = port
        self._wire = wire
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        async def call(*args: object, **named: object) -> object:
            trips = await self._wire.before(self._effects)
            answer = await method(*args, **named)
            if trips:
                await self._wire.trip(self._effects)
            return answer

        async def stream(*args: object) -> AsyncIterator[object]:
            trips = await self._wire.before(self._effects)
            async with aclosing(method(*args)) as items:
                async for item in items:
                    yield item
            if trips:
                await self._wire.trip(self._effects)

        return stream if OPERATIONS[self._name, name].streams else call
