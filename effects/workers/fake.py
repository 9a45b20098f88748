"""The fakes of the workers and audit ports: updates from a script, a log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from contract.workers import AuditEntry, WorkerCall, WorkerResult, WorkerUpdate
from effects.model.fake import Fail, Hang, Wait, act

WorkerStep = str | WorkerResult | Wait | Fail | Hang
"""A line of progress, the result, or silence, failure and hanging as in a scripted model."""
WorkerScript = Callable[[WorkerCall], Iterable[WorkerStep]]


class ScriptedWorkers:
    """Workers whose updates are scripted, in loop time.

    `script` is a function of the call, or maps `worker.action` to steps; any other instruction
    results in `unknown_action`. `calls` holds every call made, `ended` those that came to their
    result.
    """

    def __init__(self, script: WorkerScript | Mapping[str, Iterable[WorkerStep]]) -> None:
        self._script = script if callable(script) else _of(script)
        self.calls: list[WorkerCall] = []
        self.ended: list[WorkerCall] = []

    async def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
        """Play the steps of an instruction."""
        self.calls.append(call)
        for step in self._script(call):
            match step:
                case str():
                    yield WorkerUpdate(step)
                case WorkerResult():
                    self.ended.append(call)
                    yield WorkerUpdate(result=step)
                case _:
                    await act(step)


def _of(steps: Mapping[str, Iterable[WorkerStep]]) -> WorkerScript:
    table = {name: tuple(ones) for name, ones in steps.items()}
    unknown = WorkerResult(ok=False, message="unknown action", code="unknown_action")
    return lambda call: table.get(f"{call.worker}.{call.action}", (unknown,))


class MemoryAudit:
    """An audit log in memory; `entries` in the order in which they were appended."""

    def __init__(self) -> None:
        self._entries: dict[str, AuditEntry] = {}

    @property
    def entries(self) -> tuple[AuditEntry, ...]:
        """What the log holds."""
        return tuple(self._entries.values())

    async def append(self, site: str, entry: AuditEntry) -> None:
        """Append an entry, once for each id."""
        self._entries.setdefault(entry.entry_id, entry)
