"""Instructions to workers, and what comes of them."""

from __future__ import annotations

from contract.ports import Workers
from contract.workers import WorkerArgument, WorkerCall, WorkerResult, WorkerUpdate
from tests.support.clocks import let_pass

BEYOND_S = 86_400.0
"""Seconds. No limit is longer."""


async def instruct(
    workers: Workers, action: str, /, **args: WorkerArgument
) -> tuple[list[str], WorkerResult]:
    """Give an instruction, `worker.action`; returns its progress and its result.

    The result is the last update, and no other.
    """
    return _whole([update async for update in workers.run("execute", _call(action, args))])


async def instruct_overdue(
    workers: Workers, action: str, /, **args: WorkerArgument
) -> tuple[list[str], WorkerResult]:
    """Give an instruction, and let every limit run out with its first line of progress."""
    updates = []
    async for update in workers.run("execute", _call(action, args)):
        updates.append(update)
        if len(updates) == 1:
            let_pass(BEYOND_S)
    return _whole(updates)


def _call(action: str, args: dict[str, WorkerArgument]) -> WorkerCall:
    worker, _, name = action.partition(".")
    return WorkerCall(worker, name, args)


def _whole(updates: list[WorkerUpdate]) -> tuple[list[str], WorkerResult]:
    *lines, last = updates
    assert all(line.result is None for line in lines)
    assert last.result is not None
    assert not last.progress
    return [line.progress for line in lines], last.result
