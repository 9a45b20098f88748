"""The writes of every exchange, journalled where `[exchanges] journal` is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from contract.errors import EffectFailed
from contract.external import ExternalUpdate
from contract.operations import HUMAN_OPEN, LOCK_ACQUIRE, WriteLimits
from effects.stores import StoredWrite, WriteJournal
from effects.stores.pauses.write_journal import WriteState
from effects.tape import Entry
from evidence.outcomes import is_in_doubt
from router.resume.claims import Claim

log = logging.getLogger(__name__)

_UNWRITTEN: Final = frozenset({LOCK_ACQUIRE, HUMAN_OPEN})
"""A lock ends by its lease, and a question has a pause of its own."""
_MARGIN_SECONDS: Final = 60.0
"""After the deadline of a write: the clocks of hosts differ."""


@dataclass(slots=True)
class ExchangeWrites:
    """The journal of one exchange. A store that is away costs the journal, never the exchange.

    After the end of its stream the claim on its `remainder` is the journal of what is still done;
    it is stored by a task, which no cancelled sender ends.
    """

    store: WriteJournal
    exchange: str
    flow: str
    wall: Callable[[], float]
    limits: WriteLimits
    remainder: asyncio.Task[Claim | None] | None = field(default=None, init=False)
    _any: bool = field(default=False, init=False)

    async def begin(self, entry: Entry, /) -> bool:
        """Store that a write begins."""
        if (claim := await self._claim()) is not None:
            return await claim.begin(entry)
        if entry.operation in _UNWRITTEN:
            return True
        began, what = self.wall(), entry.operation.call_name(entry.args, entry.site)
        until = began + self.limits.of(entry.operation, entry.args) + _MARGIN_SECONDS
        self._any = True
        try:
            await self.store.begin(
                StoredWrite(self.exchange, entry.seq, self.flow, what, "begun", began, until)
            )
        except EffectFailed as failure:
            log.warning("a write of %s is not journalled: %s", self.exchange, failure.fault.code)
        return True

    async def end(self, entry: Entry, /) -> None:
        """Store what came of a write."""
        if (claim := await self._claim()) is not None:
            await claim.end(entry)
            return
        if entry.operation in _UNWRITTEN:
            return
        try:
            await self.store.end(self.exchange, entry.seq, _state_of(entry))
        except EffectFailed as failure:
            log.warning("a result of %s is not journalled: %s", self.exchange, failure.fault.code)

    async def close(self) -> None:
        """Remove the writes of the exchange, which has ended."""
        if (claim := await self._claim()) is not None:
            await claim.remove()
        if not self._any:
            return
        try:
            await self.store.close(self.exchange)
        except EffectFailed as failure:
            log.warning("the journal of %s stays: %s", self.exchange, failure.fault.code)

    async def _claim(self) -> Claim | None:
        return None if self.remainder is None else await asyncio.shield(self.remainder)


def _state_of(entry: Entry) -> WriteState:
    """Return what is known of a write that has ended, by its fault or by what the service says."""
    if entry.fault is not None:
        return "in_doubt" if is_in_doubt(entry.record()) else "failed"
    last = entry.items[-1] if entry.items else None
    result = last.result if isinstance(last, ExternalUpdate) else None
    return "failed" if result is not None and result.error is not None else "done"
