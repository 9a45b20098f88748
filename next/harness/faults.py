"""A stack that crashes on purpose, to see another one take over: `cutover serve --crash`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from cutover import CutoverError, Event, Request, Stack


class CrashedOnPurpose(CutoverError):
    """The crash that was asked for."""


def crashing(stack: Stack, after: int) -> Stack:
    """Return a stack that raises behind its event number `after`."""

    async def crash(request: Request[Any, Any]) -> AsyncIterator[Event]:
        count = 0
        async with aclosing(stack(request)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event
                count += 1
                if count == after:
                    raise CrashedOnPurpose

    return crash


def with_crash(stacks: Mapping[str, Stack], name: str, after: int) -> Mapping[str, Stack]:
    """Return stacks of which one crashes; `after` 0 leaves them as they are."""
    if not after:
        return stacks
    return {**stacks, name: crashing(stacks[name], after)}
