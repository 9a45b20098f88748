"""Plants faults in a stack: in its code, and in the events that it streams."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from cutover import CutoverError, Event, Refused, Request, Stack, StackFailed
from cutover.wire import Piece

Change = Callable[[Stack], Stack]
"""Wraps a stack, so that it streams otherwise."""
Mutation = Callable[[pytest.MonkeyPatch], None]
"""Changes the code of a stack, until the test ends."""

# Code


def returns(module: Any, name: str, change: Callable[[Any], Any]) -> Mutation:
    """Return a mutation that changes what a function of a module returns."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        was = getattr(module, name)
        patch.setattr(module, name, lambda *args, **named: change(was(*args, **named)))

    return mutate


def gets(module: Any, name: str, **changed: Any) -> Mutation:
    """Return a mutation that changes what a function of a module is given."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        was = getattr(module, name)
        patch.setattr(module, name, lambda *args, **named: was(*args, **{**named, **changed}))

    return mutate


def has(module: Any, path: str, value: Any) -> Mutation:
    """Return a mutation of what a module knows by a name; `a.b`: of b in the module that a is."""
    name, _, inner = path.partition(".")

    def mutate(patch: pytest.MonkeyPatch) -> None:
        new = value
        if inner:  # a module of its own: the other stack has the real one
            new = SimpleNamespace(**{**vars(getattr(module, name)), inner: value})
        patch.setattr(module, name, new)

    return mutate


def edited(flow: str, *pieces: str) -> Mutation:
    """Return a mutation of legacy's source of a flow: each first piece becomes the second."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        module = import_module(f"legacy.{flow}")
        source = inspect.getsource(module)
        for old, new in zip(pieces[::2], pieces[1::2], strict=True):
            assert source.count(old) == 1, "the source has changed: write the mutation anew"
            source = source.replace(old, new)
        changed = ModuleType(module.__name__)
        exec(compile(source, str(module.__file__), "exec"), changed.__dict__)  # noqa: S102 - our own source, with some pieces replaced
        patch.setitem(import_module("legacy").STACKS, flow, changed.__dict__[flow])

    return mutate


# Events


def name_of(event: Event) -> str:
    """Return an event's name."""
    return str(event.__struct_config__.tag)


def streams(edit: Callable[[AsyncIterator[Any]], AsyncGenerator[Event, None]]) -> Change:
    """Return a change of what a stack streams."""

    def change(stack: Stack) -> Stack:
        async def changed(request: Request[Any, Any]) -> AsyncIterator[Event]:
            async with (
                aclosing(stack(request)) as events,  # type: ignore[type-var] # a generator
                aclosing(edit(events)) as others,
            ):
                async for event in others:
                    yield event

        return changed

    return change


def edits(name: str, nth: int, edit: Callable[[Any], Iterable[Event]]) -> Change:
    """Return a change of the nth event of a name, or of every event that has it where nth is 0."""

    async def edited(events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
        seen = 0
        async for event in events:
            named = name in {"*", name_of(event)}
            seen += named
            for one in edit(event) if named and nth in {0, seen} else (event,):
                yield one

    return streams(edited)


def drops(name: str, nth: int = 1) -> Change:
    """Return a stack without an event."""
    return edits(name, nth, lambda _: ())


def doubles(name: str, nth: int = 1) -> Change:
    """Return a stack that sends an event twice."""
    return edits(name, nth, lambda event: (event, event))


def adds(new: Event, before: str, nth: int = 1) -> Change:
    """Return a stack with one event more."""
    return edits(before, nth, lambda event: (new, event))


def sets(name: str, path: str, value: Any, nth: int = 1) -> Change:
    """Return a stack with another value at the dotted path of an event."""
    *parents, last = path.split(".")

    def edit(event: Event) -> Iterable[Event]:
        data = holder = msgspec.to_builtins(event)
        for step in parents:
            holder = holder[int(step) if step.isdigit() else step]
        holder[last] = value
        return (msgspec.convert(data, type(event)),)

    return edits(name, nth, edit)


def says(old: str, new: str) -> Change:
    """Return a stack that writes something else in its events, wherever it stands."""

    def edit(event: Event) -> Iterable[Event]:
        if isinstance(event, Piece):
            return (Piece(event.raw.replace(old.encode(), new.encode())),)
        data = msgspec.json.encode(event).replace(old.encode(), new.encode())
        return (msgspec.json.decode(data, type=type(event)),)

    return edits("*", 0, edit)


def moves(name: str, behind: str) -> Change:
    """Return a stack that sends the first event of a name behind the next one of another."""

    async def moved(events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
        held: list[Event] = []
        sent = False
        async for event in events:
            if name_of(event) == name and not (held or sent):
                held.append(event)
                continue
            yield event
            if held and name_of(event) == behind:
                sent = True
                yield held.pop()

    return streams(moved)


async def _held(events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
    for event in [one async for one in events]:
        yield event


holds = streams(_held)
"""Changes a stack so that it runs to its end, and then "streams" what it has."""


def ends(before: str, nth: int = 1, error: Exception | None = None) -> Change:
    """Return a stack that ends before an event, or breaks there with an error."""

    async def ended(events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
        seen = 0
        async for event in events:
            seen += before in {"*", name_of(event)}
            if seen == nth:
                if error is not None:
                    raise error
                return
            yield event

    return streams(ended)


def fails_as(error: StackFailed | Refused) -> Change:
    """Return a stack that fails, or refuses, with another error than its own."""

    async def failed(events: AsyncIterator[Any]) -> AsyncGenerator[Event, None]:
        try:
            async for event in events:
                yield event
        except CutoverError as own:
            raise error from own

    return streams(failed)
