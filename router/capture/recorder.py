"""Recording exchanges: their runs, and what users thought of them, for the captures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from contract import operations
from contract.flow import Request
from contract.records import (
    VERSION,
    ErrorRecord,
    FeedbackRecord,
    RequestRecord,
    RunRecord,
    Score,
    ShadowState,
)
from router.capture.redaction import ExchangeValues
from router.context import Account, ExchangeContext, LedgerLine, Price, charge_of
from router.exchange_ids import Receipt
from router.serving.run import Run
from router.stack import StackName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()

_HOLD_SECONDS = 0.25
"""How long served runs wait for a shadow, to be written with it in one piece."""


class Captures(Protocol):
    """Takes finished exchanges; never waits."""

    @property
    def counts(self) -> DataclassInstance:
        """What was written and what was not."""
        ...

    def put(self, records: Sequence[RunRecord], values: ExchangeValues | None = None) -> object:
        """Take the records of one exchange, and return "queued", unless they are dropped.

        `values` where its second run comes later.
        """
        ...

    def put_later(self, record: RunRecord, values: ExchangeValues) -> object:
        """Take the second run of an exchange that was queued with the same `values`."""
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
        self._held: dict[str, asyncio.TimerHandle] = {}
        """Exchanges whose served runs wait for their shadow."""
        self._awaited: dict[str, ExchangeValues | None] = {}
        """Exchanges whose second run is to come; None where the captures did not take the first."""

    def record_served(self, context: ExchangeContext, runs: Iterable[Run]) -> bool:
        """Record the served runs; returns False, with no records, where that fails."""
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
        charges = [
            charge_of(play.entry, play.how, self._price)
            for play in run.session.plays
            if play.operation is operations.MODEL_STREAM and play.entry is not None
        ]
        outcome, session, dialect = run.outcome, run.session, run.spec.dialect
        first = run.role == "serving"
        costs = [charge.cost for charge in charges if charge.cost is not None]
        # Of an overflowed tape, or of dropped frames, there is no record rather than half of one.
        tape = context.tape.record() if first and not context.tape.overflowed else None
        frames = () if run.dropped else run.frames
        sent = max(run.sent, run.before_pause)
        skipped = _skipped(context, run)
        record = RunRecord(
            v=VERSION,
            exchange=context.exchange,
            flow=context.spec.name,
            role=run.role,
            stack=run.stack,
            assigned=context.assignment.stack,
            served=context.served,
            reason=context.reason,
            assigned_by=context.assignment.why if context.reason != context.assignment.why else "",
            bucket=context.assignment.bucket,
            config=context.config,
            code=self._fingerprints[run.stack],
            began=context.began,
            request=request_record(context.request) if first else None,
            # Bytes of remote stacks may not be UTF-8; a record is text.
            frames=tuple([(frame.at, frame.data.decode("utf-8", "replace")) for frame in frames]),
            outcome=outcome.kind if outcome else "truncated",
            error=outcome.error if outcome else None,
            tape=tape,
            plays=tuple([play.record() for play in session.plays]),
            nodes=session.trace.spent,
            run_us=session.trace.total,
            models=tuple([charge.use for charge in charges]),
            cost=sum(costs) if costs else None,
            lost_us=context.lost_us if run.role != "shadow" else 0,
            pause_bytes=context.pause_bytes if _waits(run) else 0,
            sent=sent,
            skipped=None if skipped == sent else skipped,
            client_left=context.client_left and run.role != "shadow",
            resumes=context.resumes,
            own_histories=first and context.own_histories,
            turn=context.turn if first else 0,
            history=session.history,
            dialect="" if dialect is context.spec.dialect else dialect.name,
        )
        context.records.append(record)
        context.accounts.append(
            Account(run.began, run.ended, tuple(charges), tuple(session.trace.changes))
        )

    def await_shadow(self, context: ExchangeContext) -> None:
        """Hand the served runs of an exchange to the captures, unless its shadow ends soon.

        One that is `with_workers` is held: it comes back, or its worker has written it down.
        """
        if context.with_workers:
            return
        loop = asyncio.get_running_loop()
        self._held[context.exchange] = loop.call_later(_HOLD_SECONDS, self._put_due, context)

    def _put_due(self, context: ExchangeContext) -> None:
        """Hand over the served runs of an exchange whose shadow takes longer."""
        values = ExchangeValues()
        del self._held[context.exchange]
        self._awaited[context.exchange] = None
        try:
            if self._put_served(context, "due", values):
                self._awaited[context.exchange] = values
        except Exception:
            log.exception("the records of %s are lost", context.exchange)

    def hand_over(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Hand what is left of a settled exchange to the captures, and free its tape."""
        if (held := self._held.pop(context.exchange, None)) is not None:
            held.cancel()
        try:
            if context.with_workers:
                pass  # its worker writes it down
            elif context.exchange not in self._awaited:
                self._put_served(context, _shadow_state(line), reason=line.reason)
            elif (values := self._awaited.pop(context.exchange)) is not None:
                second = _second(context, line)
                if second is not None:
                    self.captures.put_later(second, values)
        except Exception:
            # Records serve the migration: they must not cost an exchange its ledger line.
            log.exception("the records of %s are lost", context.exchange)
        finally:
            context.tape.usage.release()

    def _put_served(
        self,
        context: ExchangeContext,
        shadow: ShadowState,
        values: ExchangeValues | None = None,
        reason: str = "",
    ) -> bool:
        """Hand over all records there are; returns whether the captures took them."""
        for record in context.records:
            if record.role == "serving":
                # Known only now; nothing else has seen the record yet.
                msgspec.structs.force_setattr(record, "shadow", shadow)
                if shadow != "due":
                    msgspec.structs.force_setattr(record, "shadow_reason", reason)
        return bool(context.records) and self.captures.put(context.records, values) == "queued"

    def feedback(
        self, exchange: str, receipt: Receipt, score: Score, comment: str | None, at: int
    ) -> None:
        """Record a user's feedback; `at` is in microseconds since the epoch."""
        self.captures.feedback(
            FeedbackRecord(
                v=VERSION,
                exchange=exchange,
                score=score,
                at=at,
                comment=comment,
                flow=receipt.flow,
                assigned=receipt.assigned,
            )
        )


def _waits(run: Run) -> bool:
    """Whether a run ended in a stored pause; a shadow's is stored nowhere."""
    return run.role != "shadow" and run.outcome is not None and run.outcome.kind == "paused"


def _skipped(context: ExchangeContext, run: Run) -> int:
    """Count the first frames of a run that the client did not get."""
    if run.role == "shadow" or context.committed:
        return min(max(run.skipped, run.before_pause), len(run.frames))
    return len(run.frames)


def _shadow_state(line: LedgerLine) -> ShadowState:
    """Return what the record says of a second run: `due` where it was started to be compared."""
    match line.state:
        case "compared" | "failed":
            return "due"
        case state:
            return state


def _second(context: ExchangeContext, line: LedgerLine) -> RunRecord | None:
    """Return the record of a shadow, or one that says why it does not come; None if it failed."""
    state = _shadow_state(line)
    if state == "due":
        return next((run for run in context.records if run.role == "shadow"), None)
    serving = context.records[0]
    return RunRecord(
        v=VERSION,
        exchange=context.exchange,
        flow=context.spec.name,
        role="shadow",
        stack="graph" if serving.stack == "legacy" else "legacy",
        assigned=serving.assigned,
        served=serving.served,
        began=context.began,
        outcome="cancelled",
        error=ErrorRecord(line.reason),
        shadow=state,
    )


def request_record(request: Request[Any, Any]) -> RequestRecord:
    """Return the record of a request."""
    return RequestRecord(
        msgspec.Raw(_encoder.encode(request.body)),
        msgspec.Raw(_encoder.encode(request.options)),
        request.path,
        request.session,
    )
