"""Replays captures: a stack on the stored tapes of exchanges that were served before.

Nothing is performed and nothing is kept beside the captures: what has a line of role `replay` was
replayed, so any number of processes may be stopped, killed and started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Self, get_args

import msgspec

from cutover.errors import Failed, Left
from cutover.flow import Flow
from cutover.records import DAMAGED, EntryRecord, RunRecord, TapeRecord
from cutover.tape import Call, Entry, Exchange, Fork, load, tape_record
from router.captures import Captures, Redactor, Store
from router.captures.lines import played_line
from router.captures.reader import CaptureReader
from router.driver import Candidate
from router.exchange import Served
from router.shadow import play

log = logging.getLogger("cutover.replay")

BEHIND_SECONDS = 0.05
"""How long a replay waits when the writer of its lines is behind, before it looks again."""

State = Literal["equal", "different", "failed"]
"""What a replay came to; `failed`: the stack failed where the one that served had not."""
STATES: tuple[State, ...] = get_args(State)
Compare = Callable[[Flow, TapeRecord, RunRecord, RunRecord], bool]
"""Whether a run is equal to the one that served; raises `CutoverError` where one is damaged."""


@dataclass(frozen=True, slots=True)
class Part:
    """A share of the exchanges, the same in every process: part `number` of `count`."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the part that `2/8` names; raises `ValueError`."""
        number, _, count = text.partition("/")
        part = cls(int(number), int(count))
        if not 1 <= part.number <= part.count:
            message = f"{text!r} is no part: the second of eight is 2/8"
            raise ValueError(message)
        return part

    def __contains__(self, exchange: str) -> bool:
        digest = blake2b(exchange.encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.count == self.number - 1


@dataclass(frozen=True, slots=True)
class Target:
    """What exchanges of one flow are replayed by; `versions` go into their lines."""

    flow: Flow
    candidates: Mapping[str, Candidate]
    versions: Mapping[str, str] = field(default_factory=dict)


def replayed(
    store: Store, stack: str, flow: str | None = None, fork: Fork | None = None
) -> set[str]:
    """Return the exchanges of a store that a stack has replayed, or forked in this way."""
    lines = (one for one in CaptureReader(store, flow) if one.stack == stack)
    if fork:
        named = label(fork, stack)
        return {one.exchange for one in lines if one.versions.get("fork") == named}
    return {one.exchange for one in lines if one.role == "replay"}


def label(fork: Fork, stack: str) -> str:
    """Return what reports call a fork."""
    return f"{stack} from model call {fork.at} on, by {fork.model or 'its model'}"


class RedactedTape(Exchange):
    """A tape from captures: what a stack asks is looked for as it would stand there, redacted."""

    def __init__(self, redactor: Redactor | None) -> None:
        super().__init__()
        self._redactor = redactor

    def at(self, call: Call) -> list[Entry]:
        """Return the entries of the same call; personal data of the stack's own is replaced."""
        found = super().at(call)
        if found or self._redactor is None:
            return found
        asked = call.canonical.decode("utf-8", "replace")
        redacted = self._redactor.entry(EntryRecord(call.name, call.key.hex(), asked, 0))
        key, canonical = bytes.fromhex(redacted.key), redacted.canonical.encode()
        return super().at(msgspec.structs.replace(call, key=key, canonical=canonical))


@dataclass(slots=True, eq=False)
class Replay:
    """Replays the exchanges whose lines it is given, and stores a line of each.

    `stack` is the name of what replays, `targets` are by flow; `compare` says what is equal. `out`
    gets lines that are redacted already, where there is a `redactor`: that of the captures, with
    the same key. `done` are exchanges replayed before, and grows. `counts` has `read`, the states,
    and why exchanges were skipped, such as `replayed_before`, `cut_short`, `no_tape`, `damaged`.
    """

    stack: str
    targets: Mapping[str, Target]
    compare: Compare
    out: Captures
    redactor: Redactor | None = None
    part: Part = field(default_factory=Part)
    done: set[str] = field(default_factory=set)
    fork: Fork | None = None  # where replays become live: their lines are of the role `fork`
    counts: Counter[str] = field(default_factory=Counter)
    _parted: dict[str, list[RunRecord]] = field(default_factory=dict)
    """Exchanges of which not every line of the runs that served has been read."""

    async def run(self, lines: Iterable[RunRecord]) -> None:
        """Replay until the lines end, one exchange after the other."""
        rest = iter(lines)
        while (line := await asyncio.to_thread(next, rest, None)) is not None:
            if (runs := self._whole(line)) is not None:
                try:
                    state = await self._replay(runs)
                except Exception:
                    log.exception("exchange=%s cannot be replayed", line.exchange)
                    state = "failed"
                self.counts.update(("read", state))
        for runs in self._parted.values():
            self.counts.update(("read", "incomplete" if runs[0].role == "serving" else "no_tape"))
        self._parted.clear()

    def _whole(self, line: RunRecord) -> list[RunRecord] | None:
        """Return the lines of an exchange that was served, in order, when this is the last."""
        if line.exchange not in self.part:
            return None
        if (line.role, line.stack) == ("fork" if self.fork else "replay", self.stack):
            self.done.add(line.exchange)
        if line.role not in {"serving", "fallback"}:
            return None
        runs = self._parted.pop(line.exchange, [])
        runs.insert(0 if line.role == "serving" else len(runs), line)
        if runs[0].role == "serving" and runs[-1].stack == runs[0].served:
            return runs
        self._parted[line.exchange] = runs
        return None

    async def _replay(self, runs: Sequence[RunRecord]) -> str:
        """Return the state that a replay came to, or why there was none."""
        first, last = runs[0], runs[-1]
        target = self.targets.get(first.flow)
        if target is None:
            return "unknown_flow"
        if first.exchange in self.done:
            return "replayed_before"
        if last.outcome == Left() or getattr(last.outcome, "code", "") == "server_stopped":
            return "cut_short"
        if first.tape is None or first.tape.incomplete:
            return "no_tape" if first.tape is None else "incomplete"
        while self.out.behind:  # noqa: ASYNC110 - a thread writes, and sets no asyncio.Event
            await asyncio.sleep(BEHIND_SECONDS)
        try:
            exchange = self._exchange(target, first)
            if exchange.tape.overflowed:
                return "overflowed"
            line = await self._line(target, self.stack, exchange, runs)
            if isinstance(line, str):
                return line
            state = self._state(target, first.tape, last, line)
        except DAMAGED as error:
            log.warning("exchange=%s damaged=%s", first.exchange, type(error).__name__)
            return "damaged"
        if self.fork and getattr(line.outcome, "blame", "") == "configuration":
            return state  # it is forked again once that is mended
        self.out.line(line)
        self.done.add(line.exchange)
        others = target.candidates.keys() - {self.stack}
        if state == "different" and (first.redacted or last.redacted) and last.stack in others:
            # What a stack counts in texts, such as tokens, it counts otherwise in redacted ones:
            # the one that served is replayed, too.
            exchange = self._exchange(target, first)
            control = await self._line(target, last.stack, exchange, runs)
            if isinstance(control, RunRecord) and control.outcome == last.outcome:
                state = self._state(target, first.tape, control, line)
        if state != "equal" or line.escaped:
            facts = line.exchange, self.stack, state, line.outcome, line.escaped
            log.info("exchange=%s replay=%s state=%s outcome=%s off_the_tape=%s", *facts)
        return state

    def _state(self, target: Target, tape: TapeRecord, served: RunRecord, line: RunRecord) -> State:
        equal = self.compare(target.flow, tape, served, line)
        if isinstance(line.outcome, Failed) and not isinstance(served.outcome, Failed):
            return "failed"
        return "equal" if equal else "different"

    def _exchange(self, target: Target, line: RunRecord) -> Served:
        """Return the exchange of a serving run's line, its tape put together again."""
        body, options = msgspec.json.decode(line.request), msgspec.json.decode(line.options)
        tape = RedactedTape(self.redactor)
        load(tape, line.tape or TapeRecord())
        tape.finish_recording()
        if self.fork:  # what is live comes behind all that was stored
            tape.entries, tape.dropped = [*tape.entries, *tape.dropped], []
        request = target.flow.stored(line.path, body, options)
        return Served(line.exchange, target.flow, request, tape, line.assigned)

    async def _line(
        self, target: Target, stack: str, exchange: Served, runs: Sequence[RunRecord]
    ) -> RunRecord | str:
        """Play an exchange to a stack and return its line, redacted; or why there is none."""
        fork, named = self.fork if stack == self.stack else None, dict[str, str]()
        if fork:
            named["fork"] = label(fork, stack)
        async with exchange.tape as tape:
            asked, candidate = exchange.request, target.candidates[stack]
            played = await play(tape, target.flow, asked, candidate, fork=fork)
            if fork and not (played.run.forked or isinstance(played.outcome, Failed)):
                return "not_reached"
            line = msgspec.structs.replace(
                played_line(exchange, played, runs[0].at),
                role="fork" if fork else "replay",
                served=runs[0].served,
                versions={**target.versions, **named},
                tape=tape_record(tape) if fork else None,
            )
        try:
            return self.redactor.line(line, runs[0].tape) if self.redactor else line
        except Exception as error:  # noqa: BLE001 - its text may hold what is to be redacted
            log.error("exchange=%s redaction failed with %s", line.exchange, type(error).__name__)
            return "redaction_failed"
