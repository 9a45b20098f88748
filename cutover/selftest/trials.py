"""Trials of seeded faults: each must be found as one cause, on its own layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from compare.findings import Layer
from cutover.selftest.effect_faults import EFFECT_FAULTS
from cutover.selftest.exchanges import exchange
from cutover.selftest.faults import CodeFault, Place, RunFault
from cutover.selftest.findings import causes
from cutover.selftest.run_faults import RUN_FAULTS
from cutover.selftest.scene import SCENE
from cutover.selftest.serving import on_virtual_time, play, serve, stack_of
from cutover.selftest.stream_faults import STREAM_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contract.flow import Flow
    from contract.records import RunRecord
    from cutover.selftest.faults import Fault
    from cutover.selftest.findings import Cause
    from router.serving.stack import LocalStack

SEEDED: tuple[Fault, ...] = (*RUN_FAULTS, *STREAM_FAULTS, *EFFECT_FAULTS)


class Trial(msgspec.Struct, frozen=True):
    """What became of one fault: `detected` when it is one cause on its layer, of its kind."""

    fault: str
    place: Place
    layer: Layer
    kind: str
    found: tuple[str, ...]
    detected: bool


class Bench:
    """Both stacks, and the scene as the control has served it."""

    def __init__(self, legacy: LocalStack, flow: Flow) -> None:
        self._flow = flow
        self._serving = on_virtual_time(serve(legacy, SCENE))

    def try_out(self, fault: Fault) -> Trial:
        """Put a fault in, and see what is found."""
        found = causes(self._runs(fault))
        return Trial(
            fault.name,
            fault.place,
            fault.layer,
            fault.kind,
            tuple(map(str, found)),
            detected=_is(fault, found),
        )

    def _runs(self, fault: Fault) -> tuple[RunRecord, RunRecord]:
        match fault:
            case RunFault():
                return exchange(fault.sound, fault.script)
            case CodeFault():
                spoilt = stack_of("graph", fault.meddle(self._flow))
                return self._serving, on_virtual_time(play(spoilt, SCENE, self._serving))
            case _:
                assert_never(fault)


def _is(fault: Fault, found: Sequence[Cause]) -> bool:
    return [(cause.layer, cause.kind) for cause in found] == [(fault.layer, fault.kind)]


def trials(
    legacy: LocalStack, flow: Flow, faults: Sequence[Fault], done: Callable[[int], None]
) -> tuple[Trial, ...]:
    """Try faults out; `done` hears of each."""
    bench, tried = Bench(legacy, flow), list[Trial]()
    for fault in faults:
        tried.append(bench.try_out(fault))
        done(1)
    return tuple(tried)
