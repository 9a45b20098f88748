"""Recording exchanges: their runs as records for the captures, and who served, for feedback."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from contract.records import VERSION, FeedbackRecord, RunRecord
from router.capture.records import account_of, run_record
from router.context import ExchangeContext, Price
from router.serving.run import Run
from router.stack import StackName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)

_REMEMBERED = 100_000
"""How many past exchanges feedback can still be joined to in the serving process."""


class Captures(Protocol):
    """Takes finished exchanges; never waits."""

    @property
    def counts(self) -> DataclassInstance:
        """What was written and what was not."""
        ...

    def put(self, records: Sequence[RunRecord]) -> object:
        """Take the records of one exchange."""
        ...

    def feedback(self, record: FeedbackRecord) -> object:
        """Take a user's feedback."""
        ...


class ExchangeRecorder:
    """Records exchanges; `fingerprints` are those of the stacks."""

    def __init__(
        self, captures: Captures, price: Price, fingerprints: Mapping[StackName, str]
    ) -> None:
        self.captures = captures
        self._price = price
        self._fingerprints = fingerprints
        self._remembered: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def record_served(self, context: ExchangeContext, runs: Iterable[Run]) -> bool:
        """Record the served runs; returns False, with no records, where that fails."""
        self._remembered[context.exchange] = (context.assignment.stack, context.served)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
        try:
            for run in runs:
                self.record(context, run)
        except Exception:
            log.exception("the records of %s failed", context.exchange)
            context.records, context.accounts = [], []
            return False
        return True

    def record(self, context: ExchangeContext, run: Run) -> None:
        """Record one run."""
        account = account_of(run, self._price)
        fingerprint = self._fingerprints[run.stack]
        context.records.append(run_record(context, run, account, fingerprint))
        context.accounts.append(account)

    def hand_over(self, context: ExchangeContext) -> None:
        """Hand the records of a settled exchange to the captures, and free its tape."""
        try:
            if context.records:
                self.captures.put(context.records)
        except Exception:
            # Records serve the migration: they must not cost an exchange its ledger line.
            log.exception("the records of %s are lost", context.exchange)
        finally:
            context.tape.usage.release()

    def feedback(self, exchange: str, score: Any, comment: str | None, at: int) -> None:
        """Record a user's feedback, joined to the assigned stack where that is still known.

        `at` is in microseconds since the epoch.
        """
        assigned, served = self._remembered.get(exchange, (None, None))
        self.captures.feedback(
            FeedbackRecord(
                v=VERSION,
                exchange=exchange,
                score=score,
                at=at,
                comment=comment,
                assigned=assigned,
                served=served,
            )
        )
