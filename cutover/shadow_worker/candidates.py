"""The candidate on the tape of an exchange that was handed over, run as its router would."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import msgspec

from contract.equality import Judge, Judgement
from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.records import RunRecord
from cutover.replay.parts import Recording, Skipped, recording_of
from cutover.replay.play import NOTHING
from effects.tape import Exchange
from router.capture.recorder import Captures, ExchangeRecorder
from router.context import AssignedBy, Assignment, ExchangeContext, Price
from router.serving.frames import candidate_limit
from router.serving.run import Run, RunRequest
from router.serving.stack import Stack
from router.shadow.sessions import IdleGate, shadow_session
from router.shadow.shadows import finish
from router.stack import StackName


class CannotRun(CutoverError):
    """An exchange cannot be run here."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the exchange cannot be run: {why}")


@dataclass(frozen=True, slots=True)
class ShadowPair:
    """The served runs of an exchange and its shadow, and what is said of them."""

    runs: tuple[RunRecord, ...]
    shadow: RunRecord
    judgement: Judgement


class Candidates:
    """Runs the stack that did not serve, one exchange at a time; `seconds` for each."""

    def __init__(
        self,
        stacks: Mapping[StackName, Stack],
        flows: Mapping[str, FlowSpec],
        judge: Judge,
        captures: Captures,
        price: Price,
        seconds: float,
        exchange_bytes: int,
    ) -> None:
        self._stacks = stacks
        self._flows = flows
        self._judge = judge
        fingerprints = {name: stack.fingerprint for name, stack in stacks.items()}
        self._recorder = ExchangeRecorder(captures, price, fingerprints)
        self._gate = IdleGate(time.perf_counter)
        self._seconds = seconds
        self._exchange_bytes = exchange_bytes

    async def pair(self, runs: tuple[RunRecord, ...]) -> ShadowPair:
        """Run the candidate of an exchange; raises `CannotRun`."""
        # Nothing of it is in blobs: it comes as it was recorded.
        recording = recording_of(runs, self._flows, _no_blobs)
        if isinstance(recording, Skipped):
            raise CannotRun(recording.reason)
        last = recording.last
        name: StackName = "legacy" if runs[0].stack == "graph" else "graph"
        stack = self._stacks.get(name)
        if stack is None or not stack.powers.taped or not stack.serves(recording.spec):
            why = f"stack {name!r} has no flow {recording.spec.name!r} in this process"
            raise CannotRun(why)
        run = await self._run(recording, stack, last)
        context = _context_of(recording, last)
        self._recorder.record(context, run)
        (shadow,) = context.records
        return ShadowPair(_due(runs), shadow, self._judge([*runs, shadow]))

    async def _run(self, recording: Recording, stack: Stack, last: RunRecord) -> Run:
        exchange = Exchange(NOTHING, recording.tape)
        session = shadow_session(exchange, f"shadow {stack.name}", self._gate, None)
        served = sum(len(text.encode()) for _, text in last.frames)
        request = RunRequest(
            spec=recording.spec.sent_by(stack.name),
            stack=stack.name,
            request=recording.request,
            role="shadow",
            exchange=last.exchange,
            total_limit=partial(candidate_limit, served, self._exchange_bytes),
        )
        run = stack.new_run(request, session, strict=False)
        run.start()
        try:
            await finish(run, self._seconds)
        finally:
            session.fence()  # it holds nothing open
        run.log_failure()
        return run


def _no_blobs(digest: str) -> bytes | None:
    del digest
    return None


def _due(runs: tuple[RunRecord, ...]) -> tuple[RunRecord, ...]:
    """Let the serving run say that its second run was started."""
    return tuple(
        msgspec.structs.replace(run, shadow="due") if run.role == "serving" else run for run in runs
    )


def _context_of(recording: Recording, last: RunRecord) -> ExchangeContext:
    """Return the facts of an exchange, as its router had them."""
    serving = recording.serving
    why = cast("AssignedBy", serving.assigned_by or serving.reason)
    return ExchangeContext(
        exchange=serving.exchange,
        spec=recording.spec,
        request=recording.request,
        assignment=Assignment(cast("StackName", serving.assigned), serving.bucket, why),
        config=serving.config,
        began=serving.began,
        tape=recording.tape,
        served=cast("StackName", serving.served),
        reason=last.reason,
    )
