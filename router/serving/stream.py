"""The stream a client receives: from one run or, after a fallback or takeover, from two.

Before the first frame has gone out (the commit point) the fallback stack serves the whole stream.
After it, the fallback runs on the same tape: the frames the client has are checked and skipped,
and the rest go out. Nothing is sent twice, and nothing is cut off silently.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, assert_never

from contract.errors import CutoverError
from contract.records import ErrorRecord, Role
from contract.wire.sse import comment
from effects.loop_time import turned
from effects.tape import Entry, Exchange, Policy, TapeSession
from router.config.schema import LimitSettings
from router.context import ExchangeContext
from router.routing.histories import ConversationTurn
from router.serving.frames import Frame
from router.serving.prefix import (
    FramePrefix,
    PrefixMismatch,
    TextFrames,
    TextPrefix,
    text_prefix,
)
from router.serving.run import RUNAWAY, Run, RunRequest
from router.serving.stack import Stack
from router.stack import FIELDS, RunOutcome

log = logging.getLogger(__name__)

WriteNow = Callable[[bytes], bool]
"""Writes bytes to the client in this turn of the event loop; returns False where it cannot."""

PIECE_BYTES: Final = 65_536
"""Bytes of frames that go out together, unless one frame alone has more: what waits for a client
that reads slowly must not all be copied into the connection."""
STOP_SECONDS: Final = 1.0
"""Seconds a run has to end once it has been cancelled."""
GRACE_SECONDS: Final = 0.1
"""Seconds the last bytes of a response are held for its exchange to end."""
_SHORTEST_WAIT_US: Final = 1_000

STOPPING: Final = RunOutcome("failed", "world", ErrorRecord("stopping"))
"""The router cut the stream off because it stops."""
CLAIM_LOST: Final = RunOutcome("failed", "world", ErrorRecord("claim_lost"))
"""It resumed from a pause that another router may have resumed by now."""
_DISCONNECTED: Final = RunOutcome("cancelled", error=ErrorRecord("client_left"))
_SLOW_CLIENT: Final = RunOutcome("cancelled", error=ErrorRecord("client_unread"))
_MISMATCH: Final = RunOutcome("failed", "stack", ErrorRecord("prefix_mismatch"))
_STALLED: Final = RunOutcome("timeout", "stack", ErrorRecord("stall"))
_LINGERED: Final = RunOutcome("completed", error=ErrorRecord("lingered"))


class NotServed(CutoverError):
    """Nothing was sent, and no stack could serve."""

    def __init__(self, outcome: RunOutcome) -> None:
        self.status, self.code = 500, "internal"
        if outcome.code == "resume_mismatch":
            self.status, self.code = 409, outcome.code
        elif outcome.code and outcome.blame == "world":
            self.status, self.code = 503, outcome.code
        super().__init__(f"not served: {self.code}")


class ServedStream:
    """One exchange on its way to the client.

    `primary` is tried first: the assigned stack, unless its circuit breaker is open. `answer` is
    the human's, on the tape of an exchange that resumes after a pause. `on_first_frame` is awaited
    before anything goes out, `on_last_frame` before the terminal frame does, and `on_fallback`
    called when the fallback starts. `reason` is why another stack than the assigned one serves,
    `lost_us` how long the client waited for it. `turn` is the conversation's, where each stack
    stores its own history.
    `committed`: the first frame has gone to the client, from here on only a takeover helps.
    `ended`: the terminal frame, or a refusal, is sent or about to be. `truncated`: the stream
    broke off, and its flow defines no failure event.
    """

    run: Run
    """The run that serves now; there is none before `open`."""

    def __init__(
        self,
        context: ExchangeContext,
        exchange: Exchange,
        primary: Stack,
        fallback: Stack | None,
        limits: LimitSettings,
        answer: Entry | None = None,
        turn: ConversationTurn | None = None,
    ) -> None:
        self.context = context
        self.turn = turn
        self.exchange = exchange
        self.primary = self.served_by = primary
        self.fallback = fallback
        self.on_fallback: Callable[[Stack], None] | None = None
        self.on_first_frame: Callable[[], Awaitable[None]] | None = None
        self.on_last_frame: Callable[[], Awaitable[None]] | None = None
        self.runs: list[Run] = []
        self.reason = "" if primary.name == context.assignment.stack else "breaker"
        self.lost_us = 0
        self.disconnected = self.slow_client = False
        self.committed = self.ended = self.truncated = False
        self._limits = limits
        self._answer = answer
        self._position = 0  # of the run's next frame
        self._last: tuple[Run, int] | None = None  # whose frame the client got last, and which
        self._write_now: WriteNow | None = None
        self._on_frames: Callable[[], bool] | None = None
        self._prefix: FramePrefix | TextPrefix | None = None  # what the fallback has to repeat
        self._no_takeover = ""  # why there is none, for the log
        self._announcement: list[bytes] | None = None  # goes out before its first new frame
        self._failed_at: int | None = None
        self._stall_check: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None  # the loop alone would not keep it

    async def open(self) -> None:
        """Start serving, and wait for the first frame.

        Raises `Refused` when the flow refuses the request, `NotServed` when no stack can serve.
        """
        self._start(self.primary, "serving")
        while len(self.run.frames) <= self.run.before_pause:
            outcome = self.run.outcome
            if outcome is None:
                await self.run.changed.wait()
            elif outcome.refusal is not None:
                self.ended = True
                raise outcome.refusal
            elif not self._fall_back(outcome):
                self.ended = True
                unserved = NotServed(outcome)
                self.run.log_failure(f"status {unserved.status}")
                raise unserved
        if self.on_first_frame is not None:
            await self.on_first_frame()

    async def pieces(self, write_now: WriteNow | None = None) -> AsyncIterator[list[bytes]]:
        """Yield the frames for the client, in one piece those that are there together.

        Call `open` first. The terminal frame is in the last piece. Frames of a remote stack that
        arrive while the client waits are written by `write_now`, and not yielded.
        """
        self._write_now = write_now
        while not (self.ended or self.disconnected):
            run = self.run
            if self._position < len(run.frames) and run.outcome is not _MISMATCH:
                piece, size, last = self._next_piece(run)
                if last and self.on_last_frame is not None:
                    await self.on_last_frame()
                if piece:
                    yield piece
                run.backpressure.take(size)
            elif run.outcome is None:
                run.on_frames = self._on_frames
                await run.changed.wait()
                run.on_frames = None
            elif run.complete and run.outcome is not _MISMATCH:
                # On a wire that has no terminal event.
                if isinstance(self._prefix, TextPrefix) and self._prefix.behind:
                    run.outcome = _MISMATCH
                else:
                    self.ended = True
            elif not self._fall_back(run.outcome):
                self.ended = True
                yield [frame.data for frame in self._close_stream(run, run.outcome)]

    def sent_frames(self) -> Iterator[tuple[Run, Frame]]:
        """Yield the frames the client got and the run of each, up to those that were dropped."""
        if not self.committed:
            return
        for run, successor in zip(self.runs, [*self.runs[1:], None], strict=True):
            first = max(run.skipped, run.before_pause)
            for frame in run.frames[first : None if successor is None else successor.sent]:
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
        this exchange still held. After `GRACE_SECONDS` the exchange is closed in the background. A
        flow that works after its end by design is not waited for; the locks that it needs no
        longer are released.
        """
        if self.close_now():
            return
        await asyncio.sleep(0)  # a run that has just sent its terminal frame needs a turn to end
        if self.close_now():
            return
        works_on = self._works_on()
        waited = self._close_soon()
        if works_on:
            loop = asyncio.get_running_loop()
            waited = loop.create_task(self.exchange.release_locks(), name="release locks")
            self._releasing = waited
        await asyncio.wait({waited}, timeout=GRACE_SECONDS)

    def _works_on(self) -> bool:
        """Whether a flow works after its end: one that waits for a human does not."""
        if not (self.context.spec.grace_seconds and self.runs):
            return False
        return self.run.outcome is None or self._finisher() is not None

    async def close(self) -> None:
        """Let the runs end, then the exchange; call it once nothing more is sent."""
        if not self.close_now():
            await asyncio.shield(self._close_soon())

    def close_now(self) -> bool:
        """Close without waiting; returns False where that is not possible: call `close`."""
        if self._stall_check is not None:
            self._stall_check.cancel()
        if self._closing is not None:
            return self._closing.done()
        for run in self.runs:
            if not run.stopped:
                return False
        if self._finisher() is not None:
            return False
        self.on_fallback = None
        if not self.exchange.close_if_idle():
            return False
        if self.exchange.tape.usage.frames_overflowed:
            self._drop_unread()
        return True

    def _close_soon(self) -> asyncio.Task[None]:
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_task(self._close(), name="finish exchange")
        return self._closing

    async def _close(self) -> None:
        last = self.run if self.runs else None
        if last is None or (self.disconnected and not last.complete):
            await self.exchange.cancel_reads()
        elif not last.session.fenced:
            patience = max(self._limits.stall_seconds, self.context.spec.grace_seconds)
            if not await last.wait_finished(patience):
                last.fence(_LINGERED)
            elif (fallback := self._finisher()) is not None:
                await self._finish(fallback, patience)
        self.on_fallback = None
        for run in self.runs:
            if not await run.wait_stopped(STOP_SECONDS):
                facts = {"exchange": self.context.exchange, "flow": self.context.spec.name}
                facts |= {"stack": run.stack, "role": run.role}
                log.error("run does not end, and is left behind", extra={FIELDS: facts})
        if self.exchange.tape.usage.frames_overflowed:
            self._drop_unread()
        await self.exchange.close()

    def _finisher(self) -> Stack | None:
        """Return the stack that does what is left, where a flow crashed at work after its end."""
        outcome, fallback = self.run.outcome if self.runs else None, self.fallback
        if not (self.context.spec.grace_seconds and self.ended and len(self.runs) == 1):
            return None
        if outcome is None or outcome.blame != "stack" or not self.run.complete:
            return None
        if fallback is None or fallback.powers.repeats(self.primary.powers) != "frames":
            return None
        return None if self.exchange.tape.overflowed or self.run.session.fenced else fallback

    async def _finish(self, fallback: Stack, patience: float) -> None:
        """Let another stack do what is left; what is on the tape is not done again."""
        self.run.session.fence()
        self._replace(fallback, "finished")
        self.served_by = self.primary  # the client has its frames alone
        self.run.skipped = sys.maxsize
        if not await self.run.wait_finished(patience):
            self.run.fence(_LINGERED)

    def _drop_unread(self) -> None:
        """Drop also the frames that a client which stopped reading never got."""
        if self.runs:
            self.run.drop(len(self.run.frames) - 1)

    def _start(self, stack: Stack, role: Role) -> None:
        context, answer = self.context, self._answer
        policy: Policy = "resume" if answer else "live"
        session = TapeSession(self.exchange, f"{role} {stack.name}", policy, answer=answer)
        if context.debugged:
            session.trace.watch(session.stamp)
        request = RunRequest(
            spec=context.spec,
            stack=stack.name,
            request=context.request,
            role=role,
            incoming=context.incoming,
            exchange=context.exchange,
            unsent_limit=None if self.ended else self._limits.unsent_bytes,
        )
        run = stack.new_run(request, session)
        if self.committed:
            run.sent = run.skipped = self._position
        self._position = 0
        self.run, self.served_by = run, stack
        self.runs.append(run)
        # Frames of a stack in this process come one by one, and go out together in the next turn.
        as_they_come = self._prefix is None and not stack.powers.taped
        self._on_frames = self._write if as_they_come else None
        run.start()
        if self._stall_check is None:
            self._check_stall()

    def _fall_back(self, outcome: RunOutcome) -> bool:
        """Fence the failed run and start the fallback; returns False when there is none."""
        failed, fallback = self.run, self.fallback
        failed.fence(outcome)
        if outcome.blame != "stack" or fallback is None or len(self.runs) > 1:
            return False
        if self.exchange.tape.overflowed or self.disconnected:
            return False
        if self.committed:
            if self.turn is not None and not self.turn.known_to(fallback.name):
                # It would answer something else, whose text cannot be that of what was sent.
                self._no_takeover = f", no takeover: {fallback.name} lacks earlier turns"
                return False
            self._prefix = self._repeatable(failed, fallback)
            if self._prefix is None:
                return False
            named = comment(f"served-by {fallback.name} {fallback.fingerprint}")
            has_comments = self.context.spec.dialect.framing == "sse"
            self._announcement = [named] if has_comments else []
        self._failed_at = failed.session.touched
        self._replace(fallback, "takeover" if self.committed else "fallback")
        return True

    def _replace(self, fallback: Stack, how: str) -> None:
        """Start the fallback after a failed run, which is why it serves."""
        outcome = self.run.outcome
        if outcome is not None:
            self.reason = outcome.code or outcome.kind
        self.run.log_failure(f"{how} by {fallback.name}")
        if self.on_fallback is not None:
            self.on_fallback(fallback)
        self._start(fallback, "fallback")

    def _repeatable(self, failed: Run, fallback: Stack) -> FramePrefix | TextPrefix | None:
        """Return what the fallback has to repeat, and is checked against; None if it cannot."""
        sent = [frame.data for frame in failed.frames[: self._position]]
        if failed.outcome is not None and failed.outcome.error == RUNAWAY:
            sent = failed.flood.without_repeated(sent)
        match fallback.powers.repeats(self.primary.powers):
            case "frames":
                dialect = self.context.spec.dialect
                if self.context.spec.declared and dialect.locates_text:
                    return TextPrefix(TextFrames(dialect), sent)  # code of others cuts otherwise
                return FramePrefix(sent)
            case "text":
                taped = fallback.powers.taped
                return text_prefix(self.context.spec.dialect, sent, self.exchange.tape, taped=taped)
            case None:
                return None
            case unknown:
                assert_never(unknown)

    def _check_stall(self) -> None:
        """End a run that was offered something, and has done nothing for too long.

        One timer for the whole exchange, moved to when the limit could next be reached: a timer
        per frame would cost more than the frame.
        """
        run, limit = self.run, round(self._limits.stall_seconds * 1_000_000)
        if run.complete:
            return
        since = run.session.idle_since()
        idle = 0 if since is None else self.exchange.stamp() - since
        if idle >= limit:
            idle = round(turned(idle / 1_000_000) * 1_000_000)
        if idle >= limit:
            run.finish(_STALLED)
        wait = limit if idle >= limit else limit - idle
        loop = asyncio.get_running_loop()
        seconds = max(wait, _SHORTEST_WAIT_US) / 1_000_000
        self._stall_check = loop.call_later(seconds, self._check_stall)

    def _next_piece(self, run: Run) -> tuple[list[bytes], int, bool]:
        """Take the run's next frames, one at least.

        Returns what of them goes out, which counts as sent; their size; and whether the stream
        ends with them.
        """
        frames, first = run.frames, self._position
        piece = [frames[first].data]
        last, size = first + 1, len(piece[0])
        while last < len(frames) and size + len(frames[last].data) <= PIECE_BYTES:
            piece.append(frames[last].data)
            size += len(frames[last].data)
            last += 1
        self._position = last
        if self._prefix is not None or self._answer is not None:
            piece = self._unsent(run, first, piece)
        else:
            self._last = run, last - 1
        if piece:
            self._count_sent(run)
        return piece, size, self.ended

    def _count_sent(self, run: Run) -> None:
        self.committed = True
        self.ended = run.complete and self._last == (run, len(run.frames) - 1)
        if self.exchange.tape.usage.frames_overflowed and len(self.runs) == 1:
            # Cumulative frames of an endless reply weigh more than any tape.
            run.drop(self._position - 1)
        if self._failed_at is not None:
            self.lost_us = self.exchange.stamp() - self._failed_at
            self._failed_at = None

    def _write(self) -> bool:
        """Write frames to the client in the turn in which they came, unless they end the stream."""
        run = self.run
        data = b"".join([frame.data for frame in run.frames[self._position :]])
        if self._write_now is None or len(data) > PIECE_BYTES or run.complete:
            return False
        if not self._write_now(data):
            return False
        self._position = len(run.frames)
        self._last = run, self._position - 1
        self._count_sent(run)
        run.backpressure.take(len(data))
        return True

    def _unsent(self, run: Run, first: int, frames: list[bytes]) -> list[bytes]:
        """Return what of some frames the client does not have: after a takeover, or a pause."""
        piece: list[bytes] = []
        for position, frame in enumerate(frames, first):
            data: bytes | None = frame
            if self._prefix is not None:
                try:
                    data = self._prefix.feed(frame)
                except PrefixMismatch:
                    run.outcome = _MISMATCH  # also where it has completed in its own eyes
                    break
            elif position < run.before_pause:
                data, self._last = None, (run, position)
            if data is None:
                continue
            if self._announcement is not None:
                run.skipped = position
                piece += self._announcement
                self._announcement = None
            piece.append(data)
            self._last = run, position
        return piece

    def _close_stream(self, run: Run, outcome: RunOutcome) -> list[Frame]:
        """Return the frames that end the stream without a fallback, and record them."""
        last = self._last[0].last_event(self._last[1]) if self._last else None
        frames = run.closing_frames(outcome, last, self.exchange.stamp())
        self.truncated = not frames and outcome.kind != "paused" and not run.reported
        ending = "connection dropped" if self.truncated else "failure frames"
        run.log_failure(f"{ending}{self._no_takeover}")
        if frames:
            run.reported = True  # by the router: it has not ended well
        if outcome is not _MISMATCH:
            run.close(frames)
        return frames
