"""Pieces: frames that go to the client together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from contract.records import ErrorRecord
from contract.wire.sse import comment
from effects.tape import Policy, TapeSession
from router.serving.completion import Settling
from router.serving.failure import closing_frames, unserved
from router.serving.prefix import PrefixDiffers, resumption
from router.serving.run import Frame, Order, RunOutcome
from router.serving.stall import StallWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from contract.flow import FlowSpec, Request
    from contract.records import Role
    from effects.tape import Entry, Exchange
    from router.routing.rollout import Assignment
    from router.serving.prefix import Prefix
    from router.serving.run import Frame, Incoming, Run
    from router.stack import Repeating, Stack


Passing = Callable[[bytes], bool]
"""Sends bytes to the client there and then; False where that cannot be, and nothing is sent."""

AT_ONCE = 65_536
"""Bytes of frames that are there already and go out together, unless one alone has more: whoever
reads slowly must not have all that waits for it copied into the connection."""


def together(frames: Sequence[Frame], position: int) -> tuple[Sequence[Frame], int]:
    """Give the frames that go out at once, and their bytes: at least one."""
    rest = frames[position:]
    size = sum([len(frame.data) for frame in rest])
    if size <= AT_ONCE:
        return rest, size
    size = len(frames[position].data)
    end = position + 1
    while end < len(frames) and size + len(frames[end].data) <= AT_ONCE:
        size += len(frames[end].data)
        end += 1
    return frames[position:end], size


class Plan(msgspec.Struct, frozen=True):
    """Who serves an exchange, who may stand in, how long a stack may owe a sign of life.

    `unsent_bytes` of frames may wait for the client before the stack waits for it, too. `instead`
    serves from the start in place of the assigned stack, which its breaker spares. `answer` is the
    human's, on the tape of an exchange that goes on after a pause.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    assignment: Assignment
    assigned: Stack
    fallback: Stack | None
    stall_seconds: float
    unsent_bytes: int
    incoming: Incoming | None = None
    exchange: str = ""
    instead: Stack | None = None
    answer: Entry | None = None

    @property
    def first(self) -> Stack:
        """The stack that is tried first."""
        return self.instead or self.assigned

    def order(
        self,
        stack: Stack,
        role: Role,
        *,
        unsent: int | None = None,
        most: Callable[[], int] | None = None,
    ) -> Order:
        """Say what a stack is to be driven for."""
        return Order(
            self.spec, stack, self.request, role, self.incoming, self.exchange, unsent, most
        )

    @property
    def repeating(self) -> Repeating | None:
        """How whoever stands in says again what was sent; None where nobody can."""
        return self.fallback.powers.repeats(self.first.powers) if self.fallback else None


log = logging.getLogger(__name__)

_LEFT = RunOutcome("cancelled", "nobody", ErrorRecord("client_left"))
_UNREAD = RunOutcome("cancelled", "nobody", ErrorRecord("client_unread"))
_MISMATCH = RunOutcome("failed", "stack", ErrorRecord("prefix_mismatch"))


def _nobody() -> None:
    return


class Serving:
    """One exchange on its way to the client; `replacing` is called when another stack steps in.

    `cut` is a stream that broke off and whose flow has no words for that.
    """

    def __init__(
        self, plan: Plan, exchange: Exchange, replacing: Callable[[], None] = _nobody
    ) -> None:
        self.plan = plan
        self.exchange = exchange
        self.replacing = replacing
        self.drives: list[Run] = []
        self.reason = "breaker" if plan.instead else ""
        self.lost_us = 0
        self.left = self.unread = self.cut = False
        self._over = False
        self._sent = self._position = 0
        self._passing: Passing | None = None
        # Whoever may take over has to say again what was sent.
        self._kept = plan.repeating == "frames"
        self._prefix: Prefix | None = None
        self._digests: list[bytes] = []
        self._last: tuple[Run, Frame] | None = None
        self._failed_at: int | None = None
        self._stall = StallWatch(exchange, self.drives, plan.stall_seconds)
        patience = max(plan.stall_seconds, plan.spec.grace_seconds)
        self._settling = Settling(exchange, self.drives, patience)

    @property
    def drive(self) -> Run:
        """The drive that serves now."""
        return self.drives[-1]

    @property
    def served(self) -> Stack:
        """The stack whose frames the client gets."""
        stand_in = self.plan.fallback
        return stand_in if stand_in and len(self.drives) > 1 else self.plan.first

    @property
    def committed(self) -> bool:
        """Whether the first frame has gone to the client: from here on only a takeover helps."""
        return self._sent > 0

    @property
    def over(self) -> bool:
        """Whether the end, or a refusal, is among what the client has or is about to get."""
        return self._over

    async def open(self) -> None:
        """Start, and wait for the first frame.

        Raises `Refused` when the flow turns the request down, `Unserved` when nobody can serve.
        """
        self._start(self.plan.first, "serving")
        while len(self.drive.frames) <= self.drive.old:
            ending = self.drive.ending
            if ending is None:
                await self.drive.changed.wait()
            elif ending.refusal is not None:
                self._over = True
                raise ending.refusal
            elif not self._replace(ending):
                self._over = True
                raise unserved(ending)

    async def pieces(self, passing: Passing | None = None) -> AsyncIterator[list[bytes]]:
        """Yield the frames that go to the client, those together that are there together.

        `open` comes first; the terminal frame is in the last piece. Frames from elsewhere that come
        while the client waits for them go by `passing` and are not yielded.
        """
        self._passing = passing
        while True:
            drive = self.drive
            async for position, frames in self._produced(drive):
                piece = self._piece(position, frames)
                if piece:
                    yield piece
                if self.left or self._over:
                    return
                if drive.ending is _MISMATCH:
                    break
            ending = drive.ending
            if ending is None or self.left:
                return
            if drive.complete and ending is not _MISMATCH:
                self._over = True  # on a wire that has no terminal event
                return
            if not self._replace(ending):
                self._over = True
                closing = self._closing(ending)
                # Not a stream that ends like any other: whoever reads it is to know.
                self.cut = not closing and ending.outcome != "paused" and not drive.reported
                yield [frame.data for frame in closing]
                return

    async def _produced(self, drive: Run) -> AsyncIterator[tuple[int, Sequence[Frame]]]:
        """Yield a drive's frames as they come, until it has ended and all are out."""
        self._position = 0
        while True:
            while self._position < len(drive.frames):
                frames, size = together(drive.frames, self._position)
                yield self._position, frames
                drive.pace.took(size)
                self._position += len(frames)
            if drive.ending is not None:
                return
            if self._passing is not None and self._news(drive, self._position):
                drive.passing = self._pass
            await drive.changed.wait()
            drive.passing = None

    def _news(self, drive: Run, position: int) -> bool:
        """Whether what stands from there on is new to the client, and goes to it as it is."""
        begun = position == self._sent >= max(drive.sent, drive.old)
        # Whoever takes over says so first.
        return begun and self._prefix is None and (position > drive.sent or not position)

    def _pass(self) -> bool:
        """Send what has just come, in the turn of the loop in which it came, if it is no end."""
        drive = self.drive
        frames = drive.frames[self._position :]
        data = frames[0].data if len(frames) == 1 else b"".join([one.data for one in frames])
        if self._passing is None or len(data) > AT_ONCE or drive.ends(frames[-1]):
            return False
        if not self._passing(data):
            return False
        self._taken(frames)
        self._position += len(frames)
        drive.pace.took(len(data))
        return True

    def _taken(self, frames: Sequence[Frame]) -> list[bytes]:
        """Commit frames that are all new to the client."""
        taken = [frame.data for frame in frames]
        if self._kept:
            self._digests += map(_digest, taken)
        self._last = self.drive, frames[-1]
        self._sent += len(frames)
        self._committed()
        return taken

    def leave(self, *, unread: bool = False) -> None:
        """The client has gone, or is given up as `unread`: nothing it has not got will be sent.

        Whoever goes after the last frame, or the refusal, has got everything and has not left.
        """
        self.unread = self.unread or unread
        if self._over:
            return
        self.left = True
        self.dismiss(_UNREAD if unread else _LEFT)

    def dismiss(self, ending: RunOutcome) -> None:
        """End what serves now, as said, unless it has said its last word."""
        if self.drives and not self.drive.complete:
            self.drive.dismiss(ending)

    async def settle(self) -> None:
        """Let everything end before the last bytes go out, so that the next request finds it so.

        Who has read the end may ask again at once, and must not meet the lock of what has ended.
        A stack or a store that takes longer than `GRACE` is not waited for; nor is what a flow does
        after its end, where it is meant to.
        """
        self._rest()
        await self._settling.settle(left=self.left, afterwards=bool(self.plan.spec.grace_seconds))

    async def finish(self) -> None:
        """Let the stacks end, then the exchange; call it once nothing more is produced."""
        self._rest()
        await self._settling.finish(left=self.left)

    def finished(self) -> bool:
        """Finish at once; False where that takes waiting, and `finish` has to."""
        self._rest()
        return self._settling.at_once()

    def _rest(self) -> None:
        """Nothing more is produced: nobody need be watched, and nobody steps in."""
        self.replacing = _nobody  # who is told knows this exchange: neither keeps the other
        self._stall.end()

    def _start(self, stack: Stack, role: Role) -> None:
        plan = self.plan
        order = plan.order(stack, role, unsent=plan.unsent_bytes)
        policy: Policy = "resume" if plan.answer else "live"
        run = TapeSession(self.exchange, f"{role} {stack.name}", policy, answer=plan.answer)
        drive = stack.drive(order, run, self.exchange.stamp)
        drive.sent = self._sent
        drive.skipped = self._sent if self._prefix is None else 0
        self.drives.append(drive)
        drive.start()
        self._stall.begin()

    def _replace(self, ending: RunOutcome) -> bool:
        """Fence the failed run and start its successor; False when there is none."""
        failed, stand_in = self.drive, self.plan.fallback
        failed.dismiss(ending)
        if ending.blame != "stack" or stand_in is None or len(self.drives) > 1:
            return False
        if self.exchange.tape.overflowed or self.left:
            return False
        if self.committed and not self._repeatable(failed):
            return False
        self.reason = ending.error.code if ending.error else ending.outcome
        self._failed_at = failed.run.touched
        self.replacing()
        does = "takes over from" if self.committed else "answers instead of"
        log.warning("%s %s %s: %s", stand_in.name, does, failed.stack, self.reason)
        self._start(stand_in, "fallback")
        return True

    def _repeatable(self, failed: Run) -> bool:
        """Whether what was sent can be said again, and be known again."""
        if self.plan.repeating == "text":
            had = [frame.data for frame in failed.frames[: self._sent]]
            self._prefix = resumption(self.plan.spec.dialect, had, self.exchange.tape)
        return self._kept or self._prefix is not None

    def _piece(self, position: int, frames: Sequence[Frame]) -> list[bytes]:
        """Commit what of some frames goes to the client."""
        if self._prefix is not None:
            return self._resumed(self._prefix, position, frames)
        if self._news(self.drive, position):
            self._over = self.drive.ends(frames[-1])
            return self._taken(frames)
        return self._unsent(position, frames)

    def _unsent(self, position: int, frames: Sequence[Frame]) -> list[bytes]:
        """Commit what the client has not got yet, once what it has got is the same."""
        drive, piece = self.drive, list[bytes]()
        for at, frame in enumerate(frames, position):
            if at < self._sent:
                if self._digests[at] != _digest(frame.data):
                    # Said last, this counts: it may have ended well in its own eyes.
                    drive.ending = _MISMATCH
                    return []
                continue
            if drive.role == "fallback" and at == drive.sent > 0:
                piece += self._served_by()
            self._sent += 1
            if self._kept:
                self._digests.append(_digest(frame.data))
            if at < drive.old:
                self._last = drive, frame
                continue  # the client got it before the pause
            piece.append(frame.data)
            if drive.ends(frame):
                self._over = True
                break
        if piece:
            self._last = drive, frame
            self._committed()
        return piece

    def _resumed(self, prefix: Prefix, position: int, frames: Sequence[Frame]) -> list[bytes]:
        """Commit what goes on behind the text the client has; `_sent` counts what was looked at."""
        drive, piece = self.drive, list[bytes]()
        for at, frame in enumerate(frames, position):
            try:
                data = prefix.feed(frame.data)
            except PrefixDiffers:
                drive.ending = _MISMATCH
                break
            self._sent = at + 1
            if data is None:
                continue
            if self._last is None or self._last[0] is not drive:
                drive.skipped = at
                piece += self._served_by()
            piece.append(data)
            self._last = drive, frame
            if drive.ends(frame):
                self._over = True
                break
        if piece:
            self._committed()
        return piece

    def _committed(self) -> None:
        if self.exchange.tape.usage.frames_overflowed and len(self.drives) == 1:
            # Cumulative frames of a reply without end weigh more than any tape.
            self.drive.drop(self._sent - 1)
        if self._failed_at is not None:
            self.lost_us = self.exchange.stamp() - self._failed_at
            self._failed_at = None

    def _served_by(self) -> list[bytes]:
        """Say who goes on, where the wire has comments."""
        if self.plan.spec.dialect.framing != "sse":
            return []
        return [comment(f"served-by {self.served.name} {self.served.fingerprint}")]

    def _closing(self, ending: RunOutcome) -> list[Frame]:
        """Build the frames that end the stream without a successor, and keep them on record."""
        last = None
        if self._last is not None:
            drive, frame = self._last
            last = drive.last_event(frame)
        plan = self.plan
        frames = closing_frames(plan.spec, plan.request, ending, last, self.exchange.stamp())
        if frames:
            self.drive.reported = True  # by us: it has not ended well, whatever stands last
        if ending is not _MISMATCH:
            self.drive.frames[self._sent :] = frames
        return frames


def _digest(frame: bytes) -> bytes:
    return blake2b(frame, digest_size=8).digest()
