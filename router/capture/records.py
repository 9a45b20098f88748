"""Writing down what happened: from drives to run records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from contract import operations as ops
from contract.model import Usage
from contract.records import VERSION, ModelUse, RequestRecord, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.flow import Request
    from contract.records import EntryRecord, How
    from effects.tape import Entry, Tape
    from router.serving.run import Run
    from router.serving.stream import Serving

    Price = Callable[[str, Usage], float | None]
    """Cost of a call: the id of the model that answered, usage; None without a price."""

_encoder = msgspec.json.Encoder()


class _Asked(msgspec.Struct):
    """The one field of a model call that names its price."""

    model_id: str


_asked = msgspec.json.Decoder(_Asked)


def asked_of(entry: Entry) -> tuple[str, ModelUse]:
    """Give the model id a call on the tape named, and its account."""
    return _asked.decode(entry.args).model_id, _use(entry)


def answered_by(asked: str, use: ModelUse) -> str:
    """Give the id of the model that answered a call: the one it asked, or a fallback."""
    return use.by or asked


class Header(msgspec.Struct, frozen=True):
    """What every line of an exchange begins with."""

    exchange: str
    config: str
    began: int
    fingerprints: dict[str, str]
    resumes: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """One model call of a run: its account, the id it was asked by, and who paid for it.

    `cost` is None where no price is known, and for what comes from the tape: another paid.
    """

    use: ModelUse
    asked: str
    how: How
    cost: float | None

    @property
    def answered(self) -> str:
        """The id of the model whose tokens these are."""
        return answered_by(self.asked, self.use)


class Account(msgspec.Struct, frozen=True):
    """What a run did beside its record: from when until when, in stamps, and its model calls."""

    began: int
    ended: int
    charges: tuple[Charge, ...]


def account(drive: Run, price: Price) -> Account:
    """Give the account of a run."""
    charges = tuple(
        _charge(play.entry, _asked.decode(play.args).model_id, play.how, price)
        for play in drive.run.plays
        if play.operation is ops.MODEL_STREAM and play.entry is not None
    )
    return Account(drive.began, drive.ended, charges)


def run_record(header: Header, serving: Serving, drive: Run, account: Account) -> RunRecord:
    """Write down one run of an exchange."""
    plan, ending = serving.plan, drive.ending
    first = drive.role == "serving"
    costs = [charge.cost for charge in account.charges if charge.cost is not None]
    return RunRecord(
        v=VERSION,
        exchange=header.exchange,
        flow=plan.spec.name,
        role=drive.role,
        stack=drive.stack,
        assigned=plan.assigned.name,
        served=serving.served.name,
        reason=serving.reason or plan.assignment.why,
        bucket=plan.assignment.bucket,
        config=header.config,
        code=header.fingerprints[drive.stack],
        began=header.began,
        request=request_record(plan.request) if first else None,
        frames=_frames(drive),
        outcome=ending.outcome if ending else "truncated",
        error=ending.error if ending else None,
        tape=_tape(serving.exchange.tape) if first else None,
        plays=tuple(play.record() for play in drive.run.plays),
        nodes=drive.run.trace.spent,
        models=tuple(charge.use for charge in account.charges),
        cost=sum(costs) if costs else None,
        lost_us=serving.lost_us if drive.role != "shadow" else 0,
        sent=max(drive.sent, drive.old),
        resumes=header.resumes,
        history=drive.run.history,
    )


def _frames(drive: Run) -> tuple[tuple[int, str], ...]:
    # As with the tape: half a stream would read like a stack that speaks out of turn.
    if drive.dropped:
        return ()
    # What came over the wire may be no UTF-8; a record is text.
    return tuple([(frame.at, frame.data.decode("utf-8", "replace")) for frame in drive.frames])


def request_record(request: Request[Any, Any]) -> RequestRecord:
    """Write down what a flow was asked."""
    return RequestRecord(
        msgspec.Raw(_encoder.encode(request.body)),
        msgspec.Raw(_encoder.encode(request.options)),
        request.path,
        request.session,
    )


def _tape(tape: Tape) -> tuple[EntryRecord, ...] | None:
    # An overflowed tape has dropped items: no record is better than half of one.
    return None if tape.overflowed else tape.record()


def _charge(entry: Entry, asked: str, how: How, price: Price) -> Charge:
    use = _use(entry)
    paid = how == "live" and use.usage is not None
    cost = price(answered_by(asked, use), use.usage) if paid and use.usage else None
    return Charge(use, asked, how, cost)


def _use(entry: Entry) -> ModelUse:
    model = finish = by = ""
    usage: Usage | None = None
    for chunk in entry.items:
        if chunk is not None:
            model = chunk.model or model
            finish = chunk.finish or finish
            usage = chunk.usage or usage
            by = chunk.by or by
    return ModelUse(model, finish, usage, by)
