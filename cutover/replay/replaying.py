"""Replaying one exchange: which stacks are run, on what, and how they compare."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from compare import Comparer, Unpaired, pair_of
from compare.input.pairing import counterpart
from contract.records import ErrorRecord
from cutover.replay.playing import How, blank, play
from cutover.replay.recording import Recording, Skipped, recording_of
from cutover.replay.sides import Sides, loaded
from cutover.wiring.stacks import StackNotLoaded
from router.serving.run import RunOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compare.input.captures import Exchange
    from compare.input.pairing import Pair
    from contract.blobs import Fetch
    from contract.flow import FlowSpec
    from contract.records import RunRecord
    from cutover.replay.sides import Side
    from router.serving.stack import LocalStack

    Began = Callable[[str, str], None]
    """Hears the exchange and the stack that are about to be run."""

log = logging.getLogger(__name__)

Loss = Literal["blocked", "died"]
"""How a run took its process with it: the loop stood still, or the process ended."""
Losses = dict[tuple[str, str], Loss]
"""Runs that are lost, by exchange and stack."""

_LOST: Mapping[Loss, RunOutcome] = {
    "blocked": RunOutcome("timeout", "stack", ErrorRecord("blocked")),
    "died": RunOutcome("failed", "stack", ErrorRecord("process_died")),
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """An exchange that was replayed: the lines to keep, what they are compared as, the result."""

    runs: Exchange
    basis: str
    outcome: str
    equal: bool
    lingers: bool


class Replayer:
    """Replays exchanges on the stacks as they are now, loaded once."""

    def __init__(self, sides: Sides, how: How, specs: Mapping[str, FlowSpec]) -> None:
        """Load the stacks; raises `StackNotLoaded` for the one that was asked for."""
        self._how = how
        self._specs = specs
        self._asked = loaded(sides.asked)
        self._other = _if_there(sides.other)
        self._comparers = {name: Comparer(spec) for name, spec in specs.items()}

    async def replay(
        self, exchange: Exchange, fetch: Fetch, lost: Losses, began: Began
    ) -> Replayed | Skipped:
        """Replay one exchange; whatever it holds, the next one has its turn."""
        try:
            recording = recording_of(exchange, self._specs, fetch)
            if isinstance(recording, Skipped):
                return recording
            return await self._replay(recording, lost, began)
        except Exception as error:
            log.exception("exchange %s cannot be replayed", exchange[0].exchange)
            return Skipped(f"the replay itself failed: {type(error).__name__}")

    async def _replay(self, recording: Recording, lost: Losses, began: Began) -> Replayed | Skipped:
        stacks, against = self._stacks(recording), None
        if isinstance(stacks, Skipped):
            return stacks
        if not recording.redacted:
            against = counterpart(recording.runs, self._asked.name)
        replays, lingers = [], False
        for stack in stacks:
            loss = lost.get((recording.serving.exchange, stack.name))
            if loss is not None:
                replays.append(blank(recording, stack, _LOST[loss]))
                continue
            began(recording.serving.exchange, stack.name)
            played = await play(recording, stack, self._how, against)
            replays.append(played.record)
            lingers = lingers or played.lingers
        return self._compared(recording, replays, lingers=lingers)

    def _stacks(self, recording: Recording) -> list[LocalStack] | Skipped:
        """Choose who is run: both where something was taken out of the recording."""
        stacks = [self._asked]
        if recording.redacted:
            if isinstance(self._other, Skipped):
                return self._other
            stacks.append(self._other)
        for stack in stacks:
            if recording.spec.name not in stack.flows:
                return Skipped(f"stack {stack.name!r} has no flow {recording.spec.name!r}")
        return stacks

    def _compared(
        self, recording: Recording, replays: list[RunRecord], *, lingers: bool
    ) -> Replayed | Skipped:
        pair = pair_of((*recording.runs, *replays))
        if isinstance(pair, Unpaired):
            return Skipped(f"not comparable: {pair.reason}")
        findings = self._comparers[pair.flow].compare(pair)
        runs = _kept(recording, pair)
        return Replayed(runs, pair.basis, replays[0].outcome, not findings, lingers)


def _kept(recording: Recording, pair: Pair) -> Exchange:
    """Give the lines to write: the serving run, which has the tape, and the two compared."""
    pair_runs = [run for run in (pair.control, pair.candidate) if run is not recording.serving]
    recorded = [run for run in pair_runs if run.role != "replay"]
    return (recording.serving, *recorded, *(run for run in pair_runs if run.role == "replay"))


def _if_there(side: Side) -> LocalStack | Skipped:
    try:
        return loaded(side)
    except StackNotLoaded:
        return Skipped(f"redacted, and there is no stack {side.name!r} to run beside")
