"""`cutover serve` whose stacks break where a request's id tells them to.

    python -m tests.support.breaking serve --config cutover.toml

The id `m7:graph.crash.3:legacy.hang.0` has graph crash behind its third event, and legacy hang
before its first. So a request alone says what it tests, whichever process serves it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from cutover import CutoverError, Event, Request, Stack
from effects.tools import tool
from harness import cli, root

KINDS = ("crash", "exit", "hang", "deaf")
"""Raises; raises `SystemExit`; owes an event for good; the same, and swallows its cancellation."""


class Broken(CutoverError):
    """What a stack was told to raise."""


def breaks(identity: str) -> Mapping[str, tuple[str, int]]:
    """Return how and behind which event stacks break, by stack."""
    told = (one.split(".") for one in identity.split(":")[1:])
    return {stack: (kind, int(after)) for stack, kind, after in told}


async def break_down(kind: str) -> None:
    """Break as `kind` says; nothing returns from it."""
    if kind == "crash":
        raise Broken
    if kind == "exit":
        raise SystemExit(3)
    if kind == "deaf":
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


def breaking(name: str, stack: Stack) -> Stack:
    """Return a stack that breaks where it is told to."""

    async def broken(request: Request[Any, Any]) -> AsyncIterator[Event]:
        identity = getattr(request.body, "message_id", "") or request.body.session_id
        kind, after = breaks(identity).get(name, ("", -1))
        count = 0
        async with aclosing(stack(request)) as events:  # type: ignore[type-var]
            if after == 0:
                await break_down(kind)
            async for event in events:
                yield event
                count += 1
                if count == after:
                    await break_down(kind)

    return broken


@tool(description="Note a number", writes=True)
async def note(number: int) -> str:
    """Append a number to the file `NOTES`: a write that shows how often it was made."""
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"%d\n" % number)
    os.close(file)
    return f"noted {number}"


def main() -> None:
    """Run the command line with stacks that break."""
    whole = root.stacks
    root.stacks = lambda flow: {name: breaking(name, one) for name, one in whole(flow).items()}
    cli.main()


if __name__ == "__main__":
    main()
