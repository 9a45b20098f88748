"""Workers whose results are in the audit log before any run reads them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from contract.errors import EffectFailed
from contract.ports import Audit, Clock, Workers
from contract.workers import WORKER_ACTIONS, AuditContext, WorkerCall, WorkerResult, WorkerUpdate
from effects.tasks import CANCELLED, ended

log = logging.getLogger(__name__)

_DEADLINE: Final = "deadline"
_FAILED: Final = "adapter_failed"
"""Codes of what workers have not come to the end of, as on the tape."""


class AuditedWorkers:
    """Appends to the log what came of each instruction, whether or not a run still waits for it.

    Once for each that is carried out: runs that play it from a tape do not get here. A result is
    not `audited` where the log could not be written.
    """

    def __init__(self, workers: Workers, audit: Audit, clock: Clock) -> None:
        self._workers = workers
        self._audit = audit
        self._clock = clock

    def idempotent(self, name: str) -> bool:
        """Whether `worker.action` changes nothing: after a kill it may be made again."""
        worker, _, action = name.partition(".")
        known = WORKER_ACTIONS.get((worker, action))
        return known is not None and not known.changes

    def run(self, site: str, call: WorkerCall) -> AsyncIterator[WorkerUpdate]:
        """Carry out an instruction; the workers do not see its `audit`."""
        bare = replace(call, audit=None)
        if call.audit is None:
            return self._workers.run(site, bare)
        return self._logged(site, bare, call.audit)

    async def _logged(
        self, site: str, call: WorkerCall, context: AuditContext
    ) -> AsyncIterator[WorkerUpdate]:
        result, code = None, _FAILED
        updates = self._workers.run(site, call)
        try:
            try:
                async for update in updates:
                    if update.result is not None:
                        result = update.result
                        break
                    yield update
            except EffectFailed as failure:
                code = failure.fault.code
                raise
            except CANCELLED:
                code = _DEADLINE
                raise
            finally:
                came = result or WorkerResult(ok=False, message="", code=code)
                audited = await ended(self._append(site, call, context, came))
            if result is not None:
                yield WorkerUpdate(result=result, audited=audited)
        finally:
            if (close := getattr(updates, "aclose", None)) is not None:
                await close()  # it may have been left between two updates

    async def _append(
        self, site: str, call: WorkerCall, context: AuditContext, result: WorkerResult
    ) -> bool:
        """Append an entry; returns whether it is in the log."""
        try:
            moment = await self._clock.now(site)
            await self._audit.append(site, context.executed(call, result, moment))
        except Exception as error:  # noqa: BLE001 - the worker's result must not be lost with it
            kind = error.fault.code if isinstance(error, EffectFailed) else type(error).__name__
            log.error("%s.%s is not in the audit log: %s", call.worker, call.action, kind)
            return False
        return True
