"""The stream a client receives: from one run or, after a fallback or takeover, from two.

Before the first frame has gone out (the commit point) the fallback stack serves the whole stream.
After it, the fallback runs on the same tape: the frames the client has are checked and skipped,
and the rest go out. Nothing is sent twice, and nothing is cut off silently.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from contract.flow import FlowSpec, Request
from contract.records import ErrorRecord, Role
from contract.wire.sse import comment
from effects.tape import Entry, Exchange, Policy, TapeSession
from router.context import Assignment
from router.serving.completion import Completion
from router.serving.failure import NotServed, closing_frames
from router.serving.prefix import Prefix, PrefixMismatch, resume_text
from router.serving.run import Frame, Run, RunRequest
from router.serving.stack import Stack
from router.serving.stall import StallWatch
from router.stack import IncomingRequest, RunOutcome

log = logging.getLogger(__name__)

WriteNow = Callable[[bytes], bool]
"""Writes bytes to the client in this turn of the event loop; returns False where it cannot."""

PIECE_BYTES: Final = 65_536
"""Bytes of frames that go out together, unless one frame alone has more: what waits for a client
that reads slowly must not all be copied into the connection."""

_DISCONNECTED = RunOutcome("cancelled", error=ErrorRecord("client_left"))
_SLOW_CLIENT = RunOutcome("cancelled", error=ErrorRecord("client_unread"))
_MISMATCH = RunOutcome("failed", "stack", ErrorRecord("prefix_mismatch"))


class Plan(msgspec.Struct, frozen=True):
    """Who serves an exchange, who may take over, and within which limits.

    `primary` is tried first: the assigned stack, unless its circuit breaker is open. A run stalls
    after `stall_seconds`; it waits for the client once `unsent_bytes` of frames are not sent.
    `answer` is the human's, on the tape of an exchange that resumes after a pause.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    assignment: Assignment
    primary: Stack
    fallback: Stack | None
    stall_seconds: float
    unsent_bytes: int
    incoming: IncomingRequest | None = None
    exchange: str = ""
    answer: Entry | None = None

    @property
    def bypassed(self) -> bool:
        """Whether the assigned stack was not even tried: its circuit breaker is open."""
        return self.primary.name != self.assignment.stack

    def run_request(
        self,
        stack: Stack,
        role: Role,
        *,
        unsent_limit: int | None = None,
        total_limit: Callable[[], int] | None = None,
    ) -> RunRequest:
        """Return what a run of a stack in a role is to do."""
        return RunRequest(
            self.spec,
            stack.name,
            self.request,
            role,
            self.incoming,
            self.exchange,
            unsent_limit,
            total_limit,
        )


class ServedStream:
    """One exchange on its way to the client; `on_fallback` is called when the fallback starts.

    `reason` says why another stack than the assigned one serves, `lost_us` how long the client
    waited for it. `ended`: the terminal frame, or a refusal, is sent or about to be. `truncated`:
    the stream broke off, and its flow defines no failure event.
    """

    def __init__(
        self, plan: Plan, exchange: Exchange, on_fallback: Callable[[], None] | None = None
    ) -> None:
        self.plan = plan
        self.exchange = exchange
        self.on_fallback = on_fallback
        self.runs: list[Run] = []
        self.reason = "breaker" if plan.bypassed else ""
        self.lost_us = 0
        self.disconnected = self.slow_client = False
        self.ended = self.truncated = False
        # `_sent` frames of the run have gone out or are repeated; `_position` is what was read.
        self._sent = self._position = 0
        self._write_now: WriteNow | None = None
        fallback = plan.fallback
        self._repetition = fallback.powers.repeats(plan.primary.powers) if fallback else None
        self._digests: list[bytes] = []
        self._prefix: Prefix | None = None
        self._announced = False
        self._last: tuple[Run, Frame] | None = None
        self._failed_at: int | None = None
        self._stall = StallWatch(exchange, self.runs, plan.stall_seconds)
        patience = max(plan.stall_seconds, plan.spec.grace_seconds)
        self._completion = Completion(exchange, self.runs, patience)

    @property
    def run(self) -> Run:
        """The run that serves now."""
        return self.runs[-1]

    @property
    def served_by(self) -> Stack:
        """The stack whose frames the client gets."""
        fallback = self.plan.fallback
        return fallback if fallback and len(self.runs) > 1 else self.plan.primary

    @property
    def committed(self) -> bool:
        """Whether the first frame has gone to the client: from here on only a takeover helps."""
        return self._sent > 0

    async def open(self) -> None:
        """Start serving, and wait for the first frame.

        Raises `Refused` when the flow refuses the request, `NotServed` when no stack can serve.
        """
        self._start(self.plan.primary, "serving")
        while len(self.run.frames) <= self.run.before_pause:
            outcome = self.run.outcome
            if outcome is None:
                await self.run.changed.wait()
            elif outcome.refusal is not None:
                self.ended = True
                raise outcome.refusal
            elif not self._fall_back(outcome):
                self.ended = True
                raise NotServed(outcome)

    async def pieces(self, write_now: WriteNow | None = None) -> AsyncIterator[list[bytes]]:
        """Yield the frames for the client, in one piece those that are there together.

        Call `open` first. The terminal frame is in the last piece. Frames of a remote stack that
        arrive while the client waits are written by `write_now`, and not yielded.
        """
        self._write_now = write_now
        while not (self.ended or self.disconnected):
            run = self.run
            if self._position < len(run.frames) and run.outcome is not _MISMATCH:
                frames, size = _together(run.frames, self._position)
                if piece := self._commit(run, frames):
                    yield piece
                run.backpressure.take(size)
                self._position += len(frames)
            elif run.outcome is None:
                if write_now is not None and self._all_new(run):
                    run.on_frames = self._write
                await run.changed.wait()
                run.on_frames = None
            elif run.complete and run.outcome is not _MISMATCH:
                self.ended = True  # on a wire that has no terminal event
            elif not self._fall_back(run.outcome):
                self.ended = True
                yield [frame.data for frame in self._close_stream(run, run.outcome)]

    def sent_frames(self) -> Iterator[tuple[Run, Frame]]:
        """Yield the frames the client got and the run of each, up to those that were dropped."""
        if not self.committed:
            return
        for run, successor in zip(self.runs, [*self.runs[1:], None], strict=True):
            for frame in run.frames[run.skipped : None if successor is None else successor.sent]:
                if not frame.data:
                    return
                yield run, frame

    def disconnect(self, *, slow: bool = False) -> None:
        """The client has disconnected, or is dropped because it is too `slow` to read.

        A client that has the terminal frame, or the refusal, has been served.
        """
        self.slow_client = self.slow_client or slow
        if not self.ended:
            self.disconnected = True
            self.abort(_SLOW_CLIENT if slow else _DISCONNECTED)

    def abort(self, outcome: RunOutcome) -> None:
        """End the run that serves now, unless its terminal frame is there."""
        if self.runs and not self.run.complete:
            self.run.fence(outcome)

    async def close_in_grace(self) -> None:
        """Close the exchange before the last bytes go out, if that takes a moment only.

        A client that has the end may send its next request at once, and must not find the lock of
        this exchange still held.
        """
        self._stop_watching()
        await self._completion.close_in_grace(
            disconnected=self.disconnected, afterwards=bool(self.plan.spec.grace_seconds)
        )

    async def close(self) -> None:
        """Let the runs end, then the exchange; call it once nothing more is sent."""
        self._stop_watching()
        await self._completion.close(disconnected=self.disconnected)

    def close_now(self) -> bool:
        """Close without waiting; returns False where that is not possible: call `close`."""
        self._stop_watching()
        return self._completion.close_now()

    def _stop_watching(self) -> None:
        self.on_fallback = None
        self._stall.stop()

    def _start(self, stack: Stack, role: Role) -> None:
        plan = self.plan
        policy: Policy = "resume" if plan.answer else "live"
        session = TapeSession(self.exchange, f"{role} {stack.name}", policy, answer=plan.answer)
        request = plan.run_request(stack, role, unsent_limit=plan.unsent_bytes)
        run = stack.new_run(request, session)
        run.sent = self._sent
        run.skipped = self._sent if self._prefix is None else 0
        self._position = 0
        self.runs.append(run)
        run.start()
        self._stall.start()

    def _fall_back(self, outcome: RunOutcome) -> bool:
        """Fence the failed run and start the fallback; returns False when there is none."""
        failed, fallback = self.run, self.plan.fallback
        failed.fence(outcome)
        if outcome.blame != "stack" or fallback is None or len(self.runs) > 1:
            return False
        if self.exchange.tape.overflowed or self.disconnected:
            return False
        if self.committed and not self._repeatable(failed):
            return False
        self.reason = outcome.error.code if outcome.error else outcome.kind
        self._failed_at = failed.session.touched
        if self.on_fallback is not None:
            self.on_fallback()
        verb = "takes over from" if self.committed else "answers instead of"
        log.warning("%s %s %s: %s", fallback.name, verb, failed.stack, self.reason)
        self._start(fallback, "fallback")
        return True

    def _repeatable(self, failed: Run) -> bool:
        """Whether the fallback can repeat what was sent, and be checked against it."""
        if self._repetition == "text":
            sent = [frame.data for frame in failed.frames[: self._sent]]
            self._prefix = resume_text(self.plan.spec.dialect, sent, self.exchange.tape)
            return self._prefix is not None
        return self._repetition == "frames"

    def _all_new(self, run: Run) -> bool:
        """Whether the frames from here on go to the client as they are."""
        position = self._position
        at_the_end = position == self._sent >= max(run.sent, run.before_pause)
        announced = position > run.sent or not position
        return at_the_end and announced and self._prefix is None

    def _write(self) -> bool:
        """Write frames to the client in the turn in which they came, unless they end the stream."""
        run = self.run
        frames = run.frames[self._position :]
        data = frames[0].data if len(frames) == 1 else b"".join([frame.data for frame in frames])
        if self._write_now is None or len(data) > PIECE_BYTES or run.is_terminal(frames[-1]):
            return False
        if not self._write_now(data):
            return False
        self._count_sent(run, frames)
        self._position += len(frames)
        run.backpressure.take(len(data))
        return True

    def _commit(self, run: Run, frames: Sequence[Frame]) -> list[bytes]:
        """Return what of a run's next frames goes to the client, and count it as sent."""
        if self._all_new(run):
            self.ended = run.is_terminal(frames[-1])
            self._count_sent(run, frames)
            return [frame.data for frame in frames]
        piece: list[bytes] = []
        for position, frame in enumerate(frames, self._position):
            try:
                data = self._unsent(run, position, frame)
            except PrefixMismatch:
                run.outcome = _MISMATCH  # also where it has completed in its own eyes
                break
            if data is None:
                continue
            if run.role == "fallback" and run.sent and not self._announced:
                self._announced = True
                run.skipped = position
                piece += self._announcement()
            piece.append(data)
            self._last = run, frame
            if run.is_terminal(frame):
                self.ended = True
                break
        if piece:
            self._after_commit(run)
        return piece

    def _unsent(self, run: Run, position: int, frame: Frame) -> bytes | None:
        """Return what of a frame the client does not have; raises `PrefixMismatch`."""
        if self._prefix is not None:
            data = self._prefix.feed(frame.data)
            self._sent = position + 1
            return data
        if position < self._sent:
            if self._digests[position] != _digest(frame.data):
                raise PrefixMismatch(None)
            return None
        self._sent += 1
        if self._repetition == "frames":
            self._digests.append(_digest(frame.data))
        if position < run.before_pause:
            self._last = run, frame
            return None
        return frame.data

    def _count_sent(self, run: Run, frames: Sequence[Frame]) -> None:
        if self._repetition == "frames":
            self._digests += [_digest(frame.data) for frame in frames]
        self._last = run, frames[-1]
        self._sent += len(frames)
        self._after_commit(run)

    def _after_commit(self, run: Run) -> None:
        if self.exchange.tape.usage.frames_overflowed and len(self.runs) == 1:
            # Cumulative frames of an endless reply weigh more than any tape.
            run.drop(self._sent - 1)
        if self._failed_at is not None:
            self.lost_us = self.exchange.stamp() - self._failed_at
            self._failed_at = None

    def _announcement(self) -> list[bytes]:
        """Return the comment frame that names the new stack, where the wire has comments."""
        if self.plan.spec.dialect.framing != "sse":
            return []
        return [comment(f"served-by {self.served_by.name} {self.served_by.fingerprint}")]

    def _close_stream(self, run: Run, outcome: RunOutcome) -> list[Frame]:
        """Return the frames that end the stream without a fallback, and record them."""
        last = self._last[0].last_event(self._last[1]) if self._last else None
        spec, request = self.plan.spec, self.plan.request
        frames = closing_frames(spec, request, outcome, last, self.exchange.stamp())
        self.truncated = not frames and outcome.kind != "paused" and not run.reported
        if frames:
            run.reported = True  # by the router: it has not ended well
        if outcome is not _MISMATCH:
            run.frames[self._sent :] = frames
        return frames


def _together(frames: Sequence[Frame], position: int) -> tuple[Sequence[Frame], int]:
    """Return the frames that go out at once, at least one, and their bytes."""
    rest = frames[position:]
    size = sum([len(frame.data) for frame in rest])
    if size <= PIECE_BYTES:
        return rest, size
    size, count = len(rest[0].data), 1
    while count < len(rest) and size + len(rest[count].data) <= PIECE_BYTES:
        size += len(rest[count].data)
        count += 1
    return rest[:count], size


def _digest(frame: bytes) -> bytes:
    return blake2b(frame, digest_size=8).digest()
