"""Opening the place of the threads: this process, an SQLite file, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path

from contract.errors import CutoverError
from graph_impl import sqlite_threads
from graph_impl.threads import MemoryThreads, Threads


class NoSuchThreads(CutoverError):
    """An address names a place where no threads can be kept."""

    def __init__(self, scheme: str) -> None:
        super().__init__(
            f"threads cannot be kept in {scheme!r}; known are memory, sqlite and postgresql"
        )


class ThreadsNotOpened(CutoverError):
    """The place of the threads is out of reach, or is something else."""

    def __init__(self, scheme: str, kind: str) -> None:
        super().__init__(
            f"the {scheme} store of threads ([stores] checkpoints) cannot be opened: {kind}"
        )


@asynccontextmanager
async def opened_threads(address: str) -> AsyncIterator[Threads]:
    """Open the threads at an address; raises `NoSuchThreads` or `ThreadsNotOpened`."""
    scheme, _, rest = address.partition("://")
    async with AsyncExitStack() as stack:
        match scheme:
            case "memory":
                threads: Threads = MemoryThreads()
            case "sqlite":
                path = Path(rest.removeprefix("/"))
                threads = await _entered(scheme, sqlite_threads.opened(path), stack)
            case "postgresql":
                # Its library is an extra.
                opened = import_module("graph_impl.postgres_threads").opened
                threads = await _entered(scheme, opened(address), stack)
            case _:
                raise NoSuchThreads(scheme)
        yield threads


async def _entered(
    scheme: str, opening: AbstractAsyncContextManager[Threads], stack: AsyncExitStack
) -> Threads:
    try:
        return await stack.enter_async_context(opening)
    except Exception as error:
        # Its text may hold the address, and that a password.
        raise ThreadsNotOpened(scheme, type(error).__name__) from error
