"""The exchanges of a part: which stacks are run on each, and how the runs compare."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, assert_never

from compare.comparison import FlowComparers
from compare.input.blobs import BlobFolder
from compare.input.captures import Exchange, exchanges
from compare.input.damage import Damage
from compare.input.pairing import Pair, Unpaired, counterpart, pair_of
from compare.streams.two_formats import DialectNotConfigured
from contract.blobs import Fetch
from contract.flow import FlowSpec
from contract.flows.declared import declared_spec
from contract.records import ErrorRecord, RunRecord, encode_run
from cutover.replay.journal import NO_TURNS, Counts, packed_lines
from cutover.replay.parts import Part, Recording, Skipped, recording_of
from cutover.replay.play import PlayOptions, blank, play
from cutover.replay.services import ConversationTurns, ReplayedService, why_not_called
from cutover.replay.sides import Side, Sides, load_side
from cutover.wiring.stacks import StackNotLoaded
from effects.loop_time import counted_loop_time
from router.serving.stack import LocalStack, Stack
from router.stack import RunOutcome, StackName

OnRun = Callable[[str, str], None]
"""Called with the exchange and the stack of a run that begins."""

NO_SERVICES: Mapping[StackName, ReplayedService] = {}

log = logging.getLogger(__name__)

Loss = Literal["blocked", "died"]
"""How a run was lost with its process: its loop was blocked, or the process ended."""
Losses = dict[tuple[str, str], Loss]
"""Runs that are lost, by exchange and stack."""

_LOST: Mapping[Loss, RunOutcome] = {
    "blocked": RunOutcome("timeout", "stack", ErrorRecord("blocked")),
    "died": RunOutcome("failed", "stack", ErrorRecord("process_died")),
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """An exchange that was replayed: the runs to write, what was compared, and the result.

    `silent`: a service made no call through the gateway, though the recorded run did.
    """

    runs: Exchange
    basis: str
    outcome: str
    equal: bool
    lingers: bool
    silent: bool = False


class Replayer:
    """Replays exchanges on the stacks as they are now, loaded once."""

    def __init__(
        self,
        sides: Sides,
        options: PlayOptions,
        specs: Mapping[str, FlowSpec],
        services: Mapping[StackName, ReplayedService] = NO_SERVICES,
        turns: Mapping[str, int] = NO_TURNS,
    ) -> None:
        """Load the stacks, or take them from `services`; `turns` are what these have stored.

        Raises `StackNotLoaded` for the requested one.
        """
        declared = {name: declared_spec(name, flow) for name, flow in options.declared.items()}
        self._options = options
        self._specs = {**specs, **declared}
        self._services = services
        self._requested = services.get(sides.requested.name) or load_side(sides.requested)
        self._other = services.get(sides.other.name) or _load_other(sides.other)
        here = {name for name, spec in declared.items() if self._requested.serves(spec)}
        self._absent = set() if services else declared.keys() - here
        self._comparers = FlowComparers(self._specs)
        self._turns = ConversationTurns(turns)

    def stored_turns(self) -> dict[str, int]:
        """Return the turns of conversations that services have stored since the last call."""
        return self._turns.changes()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Return a block in which the stacks can be run."""
        async with AsyncExitStack() as opened:
            opened.enter_context(counted_loop_time())  # a suspended machine is no stack that hangs
            for stack in (self._requested, self._other):
                if isinstance(stack, LocalStack):
                    await opened.enter_async_context(stack.opened())
            yield

    async def replay(
        self, exchange: Exchange, fetch: Fetch, lost: Losses, on_run: OnRun, *, sent: bool = False
    ) -> Replayed | Skipped:
        """Replay one exchange; an error in it does not reach the next one.

        `sent`: an interrupted replay may have sent it to a service.
        """
        try:
            recording = recording_of(exchange, self._specs, fetch, self._absent)
            if isinstance(recording, Skipped):
                return recording
            if not self._services:
                return await self._replay(recording, lost, on_run)
            if why := why_not_called(recording):
                return Skipped(why)
            async with self._turns.turn(recording, sent=sent) as why:
                return Skipped(why) if why else await self._replay(recording, lost, on_run)
        except Exception as error:
            log.exception("exchange %s cannot be replayed", exchange[0].exchange)
            return Skipped(f"the replay itself failed: {type(error).__name__}", unread=True)

    async def _replay(
        self, recording: Recording, lost: Losses, on_run: OnRun
    ) -> Replayed | Skipped:
        stacks, against = self._stacks(recording), None
        if isinstance(stacks, Skipped):
            return stacks
        if not recording.redacted:
            against = counterpart(recording.runs, self._requested.name)
        replays, lingers = [], False
        for stack in stacks:
            loss = lost.get((recording.serving.exchange, stack.name))
            if loss is not None:
                replays.append(blank(recording, stack, _LOST[loss]))
                continue
            on_run(recording.serving.exchange, stack.name)
            try:
                played = await play(recording, stack, self._options, against)
            finally:
                if isinstance(stack, ReplayedService):
                    stack.close(recording.serving.exchange)
            replays.append(played.record)
            lingers = lingers or played.lingers
        if self._services:
            self._turns.store(recording, [run.outcome for run in replays])
        return self._compared(recording, replays, lingers=lingers)

    def _stacks(self, recording: Recording) -> list[Stack] | Skipped:
        """Return the stacks to run: both where data was removed from the recording."""
        stacks: list[Stack] = [self._requested]
        if recording.redacted:
            if isinstance(self._other, Skipped):
                return self._other
            stacks.append(self._other)
        for stack in stacks:
            if not stack.serves(recording.spec):
                return Skipped(f"stack {stack.name!r} has no flow {recording.spec.name!r}")
        return stacks

    def _compared(
        self, recording: Recording, replays: list[RunRecord], *, lingers: bool
    ) -> Replayed | Skipped:
        pair = pair_of((*recording.runs, *replays))
        if isinstance(pair, Unpaired):
            return Skipped(f"not comparable: {pair.reason}")
        runs = _runs_to_write(recording, pair)
        try:
            pair, comparer = self._comparers.of(pair)
        except DialectNotConfigured as trouble:
            return Skipped(str(trouble))
        findings = comparer.compare(pair)
        silent = bool(self._services and recording.tape.entries and not replays[0].plays)
        return Replayed(runs, pair.basis, replays[0].outcome, not findings, lingers, silent)


def _runs_to_write(recording: Recording, pair: Pair) -> Exchange:
    """Return the runs to write: the serving one, which has the tape, and the two compared."""
    pair_runs = [run for run in (pair.control, pair.candidate) if run is not recording.serving]
    recorded = [run for run in pair_runs if run.role != "replay"]
    return (recording.serving, *recorded, *(run for run in pair_runs if run.role == "replay"))


def _load_other(side: Side) -> LocalStack | Skipped:
    try:
        return load_side(side)
    except StackNotLoaded:
        return Skipped(f"redacted, and there is no stack {side.name!r} to run beside")


@dataclass(frozen=True, slots=True)
class PartJob:
    """A part to replay, so many exchanges at a time; `lost` runs are not tried again.

    `sent`: an interrupted replay may have sent its requests to a service.
    """

    part: Part
    at_once: int = 1
    lost: Losses = field(default_factory=dict)
    sent: bool = False


@dataclass(slots=True)
class PartResult:
    """The segment and counts of a part, and whether a stack ran on after its cancellation.

    `turns` are those of conversations that services have stored by it, `log` what stacks logged
    where that cannot be written at once.
    """

    packed: bytes = field(default=b"", repr=False)
    counts: Counts = field(default_factory=Counts)
    lingers: bool = False
    turns: dict[str, int] = field(default_factory=dict)
    log: str = field(default="", repr=False)


async def replay_part(job: PartJob, replayer: Replayer, on_run: OnRun) -> PartResult:
    """Replay the exchanges of a part in order."""
    result, lines = PartResult(), list[bytes]()
    fetch = BlobFolder(job.part.place).fetch
    async with replayer.opened():
        for group in _groups(job, result):
            replays = (
                replayer.replay(one, fetch, job.lost, on_run, sent=job.sent) for one in group
            )
            for exchange, replay in zip(group, await asyncio.gather(*replays), strict=True):
                lines += _counted(exchange, replay, result)
    result.packed = packed_lines(lines)
    result.turns = replayer.stored_turns()
    return result


def _groups(job: PartJob, result: PartResult) -> Iterator[Sequence[Exchange]]:
    group: list[Exchange] = []
    for read in exchanges(job.part.lines, job.part.segment):
        if isinstance(read, Damage):
            result.counts.damage(read)
            continue
        group.append(read.runs)
        if len(group) == job.at_once:
            yield group
            group = []
    if group:
        yield group


def _counted(exchange: Exchange, replay: Replayed | Skipped, result: PartResult) -> Iterable[bytes]:
    """Count an exchange; returns the lines that are written of it."""
    match replay:
        case Skipped(reason, unread):
            result.counts.skip(exchange[0].exchange, reason, unread=unread)
            return ()
        case Replayed():
            result.counts.compare(replay.basis, replay.outcome, equal=replay.equal)
            result.counts.silent += replay.silent
            result.lingers = result.lingers or replay.lingers
            return map(encode_run, replay.runs)
        case _:
            assert_never(replay)
