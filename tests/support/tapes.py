"""A small world of effects for tests of the tape: counts, and can be held at any step."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cutover import Exchange, Run, effect
from cutover.errors import Failed
from cutover.tape import Entry

T = TypeVar("T")


class Broken(Exception):
    """What the world raises, declared by its effects."""


@dataclass(eq=False)
class World:
    """Performs effects; `done` is what it has performed, `gates` hold a call of that key."""

    done: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)

    @effect("world.read", raises=(Broken,))
    async def read(self, key: str) -> str:
        """Return a value; keys that begin with `bad` raise `Broken`."""
        return await self._perform(key)

    @effect("world.write", writes=True, seconds=5.0, raises=(Broken,))
    async def write(self, key: str) -> str:
        """Change the world."""
        return await self._perform(key)

    @effect("world.stream")
    async def stream(self, key: str, count: int = 5) -> AsyncIterator[int]:
        """Yield numbers; `key/2` is the gate before the third."""
        self.begun.append(key)
        for number in range(count):
            await self._pass(f"{key}/{number}")
            yield number
        self.done.append(key)

    async def _perform(self, key: str) -> str:
        self.begun.append(key)
        await self._pass(key)
        self.done.append(key)
        if key.startswith("bad"):
            raise Broken(key)
        return f"{key} #{self.done.count(key)}"

    async def _pass(self, key: str) -> None:
        if (gate := self.gates.get(key)) is not None:
            await gate.wait()

    def hold(self, *keys: str) -> None:
        """Hold the calls of these keys until `let`."""
        self.gates |= {key: asyncio.Event() for key in keys}

    def let(self, *keys: str) -> None:
        """Let the calls of these keys go on; all of them without keys."""
        for key in keys or self.gates:
            self.gates[key].set()


def start(run: Run, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
    """Run a stack's code in a task that belongs to a run."""
    with run.current():
        return asyncio.get_running_loop().create_task(work())


async def within(run: Run, work: Callable[[], Awaitable[T]]) -> T:
    """Run a stack's code in this task, as a part of a run."""
    with run.current():
        return await work()


def play(exchange: Exchange, stack: str = "graph") -> Run:
    """Return a run that plays."""
    return Run(exchange, stack, "shadow", "play")


async def turn(times: int = 20) -> None:
    """Let the loop turn, so that whatever can go on without time has done so."""
    for _ in range(times):
        await asyncio.sleep(0)


async def ended(task: asyncio.Task[Any]) -> BaseException | None:
    """Return what a task raised, None where it returned."""
    done, _ = await asyncio.wait({task}, timeout=10)
    assert done, "it waits for ever"
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until a thread has made a condition true."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads set no asyncio.Event
            await asyncio.sleep(0.001)


async def never() -> AsyncIterator[bytes]:
    """Perform a call that must not be performed."""
    for reason in ("what is on the tape is not performed",):
        raise AssertionError(reason)
    yield b""


def code(run: Run) -> str:
    """Return the code of a run that failed."""
    assert isinstance(run.ended, Failed)
    return run.ended.code


def ends(exchange: Exchange) -> list[str]:
    """Return how the entries ended."""
    return [entry.end for entry in exchange.entries]


def values(entry: Entry) -> list[bytes]:
    """Return the items of an entry that can be stored."""
    return [item for _, item in entry.items if isinstance(item, bytes)]
