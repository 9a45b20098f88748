"""Instructions to workers, and what comes of them."""

from __future__ import annotations

from contract.ports import Workers
from contract.workers import WorkerArgument, WorkerCall, WorkerResult


async def instruct(
    workers: Workers, action: str, /, **args: WorkerArgument
) -> tuple[list[str], WorkerResult]:
    """Give an instruction, `worker.action`; returns its progress and its result.

    The result is the last update, and no other.
    """
    worker, _, name = action.partition(".")
    call = WorkerCall(worker, name, args)
    *lines, last = [update async for update in workers.run("execute", call)]
    assert all(line.result is None for line in lines)
    assert last.result is not None
    assert not last.progress
    return [line.progress for line in lines], last.result
