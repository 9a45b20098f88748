"""The workers port: finds the action, checks its arguments, holds it to its limits."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from contract.errors import EffectFailed, Fault
from contract.workers import (
    WORKER_ACTIONS,
    BadWorkerArguments,
    WorkerAction,
    WorkerCall,
    WorkerResult,
    WorkerUpdate,
    complete_arguments,
)
from effects.loop_time import limit
from effects.tasks import ANYTHING, CANCELLED, ended
from effects.workers.action import Action, ActionFailed, ReportLine
from effects.workers.progress import ProgressBounds, ProgressLines, shown

log = logging.getLogger(__name__)

MESSAGE_CHARACTERS: Final = 2_000
_DEFAULT_BOUNDS: Final = ProgressBounds()


class WorkerRegistry:
    """The workers of this machine, by (worker, action).

    `actions` are those that are configured: any other of the table results in `not_configured`,
    what is not in the table in `unknown_action`. No action takes more than `seconds`, unless
    `limits` has its own.
    """

    def __init__(
        self,
        actions: Mapping[tuple[str, str], Action],
        *,
        seconds: float = 30.0,
        limits: Mapping[tuple[str, str], float] | None = None,
        bounds: ProgressBounds = _DEFAULT_BOUNDS,
    ) -> None:
        self._actions = dict(actions)
        self._seconds = seconds
        self._limits = dict(limits or {})
        self._bounds = bounds
        self._running: set[asyncio.Task[WorkerResult]] = set()
        self._closed = False

    @property
    def configured(self) -> tuple[str, ...]:
        """The actions there are, as `worker.action`, in the order of the table."""
        return tuple(".".join(key) for key in WORKER_ACTIONS if key in self._actions)

    async def run(self, site: str, call: WorkerCall) -> AsyncGenerator[WorkerUpdate, None]:
        """Carry out an instruction: its lines of progress, then its result.

        Closing the iterator cancels the action, and waits until nothing of it is left. Raises
        `EffectFailed` with `worker_unavailable` once the registry is closed.
        """
        if self._closed:
            raise EffectFailed(Fault("worker_unavailable", data={"reason": "closed"}))
        lines = ProgressLines(self._bounds)
        task = asyncio.create_task(
            self._result(call, lines.report), name=f"worker {call.worker}.{call.action}"
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            async for line in lines.until(task):
                yield WorkerUpdate(progress=line)
            if task.cancelled():
                raise EffectFailed(Fault("worker_unavailable", data={"reason": "closed"}))
            yield WorkerUpdate(result=task.result())
        finally:
            task.cancel()
            await ended(asyncio.wait([task]))

    async def aclose(self) -> None:
        """Cancel what is running, and wait until nothing of it is left; idempotent."""
        self._closed = True
        for task in self._running:
            task.cancel()
        if self._running:
            await ended(asyncio.wait(self._running))

    async def _result(self, call: WorkerCall, report: ReportLine) -> WorkerResult:
        key = call.worker, call.action
        known = WORKER_ACTIONS.get(key)
        if known is None:
            return _failure("unknown_action", f"there is no action {'.'.join(key)!r}")
        seconds = self._limits.get(key, self._seconds)
        scope = limit(seconds)
        try:
            arguments = complete_arguments(known, call.args)
            action = self._actions.get(key)
            if action is None:
                return _failure("not_configured", f"{'.'.join(key)!r} is not configured here")
            async with scope:
                return _storable(await action(arguments, report))
        except BadWorkerArguments as wrong:
            return _failure("bad_arguments", str(wrong))
        except ActionFailed as failure:
            return _failure(failure.code, failure.message)
        except CANCELLED:
            raise
        except ANYTHING as failure:  # SystemExit, too: in a task it would end the router
            if scope.expired():
                return _failure("worker_timeout", f"ended after its limit of {seconds:g} s")
            if isinstance(failure, OSError) and failure.strerror:
                return _failure("worker_failed", failure.strerror)
            _log_failure(known, failure)
            return _failure("worker_failed", "the worker failed; its log says why")


def _failure(code: str, message: str) -> WorkerResult:
    return WorkerResult(ok=False, message=shown(message, MESSAGE_CHARACTERS), code=code)


def _storable(result: WorkerResult) -> WorkerResult:
    """Return a result as UTF-8 can encode it: names of files and processes may be any bytes."""
    return WorkerResult(
        ok=result.ok,
        message=shown(_encodable(result.message), MESSAGE_CHARACTERS),
        code=result.code,
        data=_encodable(result.data),
    )


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_encodable(one) for one in value]
        case dict():
            return {_encodable(name): _encodable(one) for name, one in value.items()}
        case _:
            return value


def _log_failure(action: WorkerAction, failure: BaseException) -> None:
    """Log where an action failed: neither its arguments nor a message that may quote them."""
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    kind = type(failure).__name__
    log.warning("worker %s.%s: %s at %s", action.worker, action.name, kind, where)
