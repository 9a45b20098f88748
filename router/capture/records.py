"""Run records: what is written of one run of an exchange."""

from __future__ import annotations

from typing import Any

import msgspec

from contract import operations
from contract.flow import Request
from contract.records import VERSION, RequestRecord, RunRecord
from router.context import Account, ExchangeContext, Price, charge_of
from router.serving.run import Run

_encoder = msgspec.json.Encoder()


def account_of(run: Run, price: Price) -> Account:
    """Return what a run did beside its record."""
    charges = tuple(
        charge_of(play.entry, play.how, price)
        for play in run.session.plays
        if play.operation is operations.MODEL_STREAM and play.entry is not None
    )
    return Account(run.began, run.ended, charges)


def run_record(context: ExchangeContext, run: Run, account: Account, fingerprint: str) -> RunRecord:
    """Return the record of one run; `fingerprint` is that of its stack's code."""
    outcome, session = run.outcome, run.session
    first = run.role == "serving"
    costs = [charge.cost for charge in account.charges if charge.cost is not None]
    # Of an overflowed tape, or of dropped frames, there is no record rather than half of one.
    tape = context.tape.record() if first and not context.tape.overflowed else None
    frames = () if run.dropped else run.frames
    return RunRecord(
        v=VERSION,
        exchange=context.exchange,
        flow=context.spec.name,
        role=run.role,
        stack=run.stack,
        assigned=context.assignment.stack,
        served=context.served,
        reason=context.reason,
        bucket=context.assignment.bucket,
        config=context.config,
        code=fingerprint,
        began=context.began,
        request=request_record(context.request) if first else None,
        # Bytes of remote stacks may not be UTF-8; a record is text.
        frames=tuple([(frame.at, frame.data.decode("utf-8", "replace")) for frame in frames]),
        outcome=outcome.kind if outcome else "truncated",
        error=outcome.error if outcome else None,
        tape=tape,
        plays=tuple([play.record() for play in session.plays]),
        nodes=session.trace.spent,
        models=tuple([charge.use for charge in account.charges]),
        cost=sum(costs) if costs else None,
        lost_us=context.lost_us if run.role != "shadow" else 0,
        sent=max(run.sent, run.before_pause),
        resumes=context.resumes,
        history=session.history,
    )


def request_record(request: Request[Any, Any]) -> RequestRecord:
    """Return the record of a request."""
    return RequestRecord(
        msgspec.Raw(_encoder.encode(request.body)),
        msgspec.Raw(_encoder.encode(request.options)),
        request.path,
        request.session,
    )
