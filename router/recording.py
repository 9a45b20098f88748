"""Writing down what happened: from drives to run records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from contract import operations as ops
from contract.model import Usage
from contract.records import VERSION, ModelUse, RequestRecord, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.records import EntryRecord, How
    from effects.tape import Entry, Tape
    from router.driving import Drive
    from router.serving import Serving

    Price = Callable[[str, Usage], float | None]
    """Cost of a call: model id and usage to money, None where no price is configured."""

_encoder = msgspec.json.Encoder()


class _Asked(msgspec.Struct):
    """The one field of a model call that names its price."""

    model_id: str


_asked = msgspec.json.Decoder(_Asked)


def asked_of(entry: Entry) -> tuple[str, Usage | None]:
    """Give the model id a call on the tape named, and what it used where that is known."""
    return _asked.decode(entry.args).model_id, _use(entry).usage


@dataclass(frozen=True, slots=True)
class Header:
    """What every line of an exchange begins with."""

    exchange: str
    config: str
    began: int
    fingerprints: dict[str, str]


def serving_records(header: Header, serving: Serving, price: Price) -> list[RunRecord]:
    """Write down the serving run, and the fallback's if there was one."""
    return [_record(header, serving, drive, price) for drive in serving.drives]


def shadow_record(header: Header, serving: Serving, drive: Drive, price: Price) -> RunRecord:
    """Write down a shadow run."""
    return _record(header, serving, drive, price)


def _record(header: Header, serving: Serving, drive: Drive, price: Price) -> RunRecord:
    plan, ending = serving.plan, drive.ending
    first = drive.role == "serving"
    models = _models(drive)
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
        request=_request(serving) if first else None,
        frames=_frames(drive),
        outcome=ending.outcome if ending else "truncated",
        error=ending.error if ending else None,
        tape=_tape(serving.exchange.tape) if first else None,
        plays=tuple(play.record() for play in drive.run.plays),
        nodes=drive.run.trace.spent,
        models=tuple(use for use, _, _ in models),
        cost=_cost(models, price),
        lost_us=serving.lost_us if drive.role != "shadow" else 0,
        sent=drive.sent,
    )


def _frames(drive: Drive) -> tuple[tuple[int, str], ...]:
    # As with the tape: half a stream would read like a stack that speaks out of turn.
    if drive.dropped:
        return ()
    # What came over the wire may be no UTF-8; a record is text.
    return tuple((frame.at, frame.data.decode("utf-8", "replace")) for frame in drive.frames)


def _request(serving: Serving) -> RequestRecord:
    request = serving.plan.request
    return RequestRecord(
        msgspec.Raw(_encoder.encode(request.body)), msgspec.Raw(_encoder.encode(request.options))
    )


def _tape(tape: Tape) -> tuple[EntryRecord, ...] | None:
    # An overflowed tape has dropped items: no record is better than half of one.
    return None if tape.overflowed else tape.record()


def _models(drive: Drive) -> list[tuple[ModelUse, str, How]]:
    """Give the account of each model call of a run, the id it was asked by, and who paid."""
    return [
        (_use(play.entry), _asked.decode(play.args).model_id, play.how)
        for play in drive.run.plays
        if play.operation is ops.MODEL_STREAM and play.entry is not None
    ]


def _use(entry: Entry) -> ModelUse:
    model = finish = ""
    usage: Usage | None = None
    for chunk in entry.items:
        if chunk is not None:
            model = chunk.model or model
            finish = chunk.finish or finish
            usage = chunk.usage or usage
    return ModelUse(model, finish, usage)


def _cost(models: list[tuple[ModelUse, str, How]], price: Price) -> float | None:
    """Sum what the run's own calls cost: what comes from the tape was paid by another."""
    costs = [
        price(asked, use.usage)
        for use, asked, how in models
        if how == "live" and use.usage is not None
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
