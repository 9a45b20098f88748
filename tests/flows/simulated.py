"""The simulated provider as a scripted model: its pure plan, read by the real decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from contract.errors import Fault
from contract.model import ModelCall
from effects.model import Fail, Hang, Script, Step, Wait
from effects.model.chunks import encode_call
from effects.model.errors import status_fault
from effects.model.stream import StreamAssembler
from loadtests.simulator import (
    AnswerScript,
    Complete,
    Cut,
    ErrorEvent,
    HttpError,
    NoDone,
    Profile,
    Reset,
    SilentBeforeFirst,
    script_for,
)
from loadtests.simulator.profile import Stall
from loadtests.simulator.request import Refusal, decode

MODEL = "sim-chat"


def simulated(profile: Profile | None = None) -> Script:
    """Make a model that answers any call as the simulated provider would."""
    shape = Profile(chunk=4, rate=40.0) if profile is None else profile

    def script(call: ModelCall) -> Iterator[Step]:
        asked = decode(encode_call(call, MODEL))
        assert not isinstance(asked, Refusal)
        return steps(script_for(asked, shape))

    return script


def steps(planned: AnswerScript) -> Iterator[Step]:
    """Turn a planned answer into what a model port gives, with its times."""
    if planned.status != 200:
        yield Fail(status_fault(planned.status, {}, None))
        return
    assembler, now = StreamAssembler(), 0
    for sent in planned.chunks:
        if sent.due_us > now:
            yield Wait((sent.due_us - now) / 1_000_000)
            now = sent.due_us
        yield from assembler.feed(sent.wire)
    match planned.ending:
        case Complete() | NoDone() | Cut() | ErrorEvent():
            fault = assembler.end()
            if fault is not None:
                yield Fail(fault)
        case Stall() | SilentBeforeFirst():
            yield Wait(30.0)
            yield Fail(Fault("model_timeout_idle", retryable=True))
        case HttpError() | Reset():
            yield Hang()
        case _:
            assert_never(planned.ending)
