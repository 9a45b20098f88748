"""Stores in this process: fakes of the ports, and enough for one router or a demonstration."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Final, assert_never
from uuid import uuid4

import msgspec

from contract.errors import EffectFailed, Fault
from contract.stores import ChatKey, DataSubject, Turn, require_storable
from effects.stores.conversations import ErasedTurns, FlowView, check_turn, same_turn, stamped
from effects.stores.pauses.store import PauseKey, PauseStore, Reply, Step
from effects.stores.pauses.transitions import (
    OVER,
    REMAINDER,
    Pause,
    PauseTotals,
    encoded,
    standing,
)
from effects.stores.shared_state import (
    NOTE_SECONDS,
    BreakerNote,
    NoteUpdate,
    Pin,
    PinCount,
    PinnedStack,
    Spending,
    pin_key,
    pins_by_flow,
    replaces,
    total,
)


class MemoryConversations(FlowView):
    """Turns in the order they were stored; gone with the process.

    `turns` are stored already, as they are. `wall` returns seconds since the Unix epoch.
    """

    def __init__(self, turns: Iterable[Turn] = (), wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._turns: dict[tuple[str, str], Turn] = {}
        for turn in turns:
            check_turn(turn)
            self._turns["", turn.message_id] = turn

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Everything stored, oldest first."""
        return tuple(self._turns.values())

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        require_storable("store_failed", message_id)
        own = self._turns.get((self.flow, message_id))
        return own or self._turns.get(("", message_id))

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        flow = "" if ("", turn.message_id) in self._turns else self.flow
        new = stamped(turn, self._wall)
        return same_turn(self._turns.setdefault((flow, turn.message_id), new), turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        require_storable("store_failed", chat_id, before)
        seen = (turn for (flow, _), turn in self._turns.items() if flow in {"", self.flow})
        earlier = takewhile(lambda turn: turn.message_id != before, seen)
        return _recent([turn for turn in earlier if turn.chat_id == chat_id], limit)

    async def erase(self, subject: DataSubject) -> ErasedTurns:
        """Remove a subject's turns and the replies to them."""
        require_storable("store_failed", subject.value)
        found = {
            key: turn for key, turn in self._turns.items() if self._belongs(key[0], turn, subject)
        }
        for key in found:
            del self._turns[key]
        chats = {ChatKey(key[0], turn.chat_id) for key, turn in found.items() if turn.chat_id}
        return ErasedTurns(len(found), frozenset(chats))

    def _belongs(self, flow: str, turn: Turn, subject: DataSubject) -> bool:
        if subject.flow and flow not in {"", subject.flow}:
            return False
        match subject.kind:
            case "chat":
                return turn.chat_id == subject.value
            case "message":
                return subject.value in {turn.message_id, turn.reply_to}
            case "user":
                keys = {(one, turn.reply_to or "") for one in (flow, "")}
                asked = {self._turns[key].user_id for key in keys & self._turns.keys()}
                return subject.value in {turn.user_id, *asked}
            case _:
                assert_never(subject.kind)


def _recent(turns: Sequence[Turn], limit: int) -> tuple[Turn, ...]:
    """Return the last `limit` turns of a chat, of several replies to one message the newest."""
    recent: list[Turn] = []
    answered: set[str] = set()
    for turn in reversed(turns):
        if len(recent) >= limit:
            break
        if turn.role == "assistant" and turn.reply_to is not None:
            if turn.reply_to in answered:
                continue
            answered.add(turn.reply_to)
        recent.append(turn)
    return tuple(reversed(recent))


class MemoryPauses(PauseStore):
    """Pauses by id; gone with the process. `clock` returns seconds since the Unix epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._pauses: dict[str, Pause] = {}

    async def _insert(self, pause: Pause) -> bool:
        if pause.hitl_id in self._pauses:
            return False
        self._pauses[pause.hitl_id] = pause
        return True

    async def _read(self, hitl_id: str) -> Pause | None:
        return self._pauses.get(hitl_id)

    async def _pending(self, session_id: str | None, flow: str | None) -> Iterable[Pause]:
        return (
            msgspec.structs.replace(pause, tape=b"")
            for pause in self._live()
            if session_id in {None, pause.session_id} and flow in {None, pause.flow}
        )

    async def _waiting(self) -> Iterable[tuple[Pause, int]]:
        return ((pause, len(pause.tape)) for pause in self._live())

    async def _totals(self, now: float) -> Mapping[str, PauseTotals]:
        found: dict[str, PauseTotals] = {}
        for pause in self._live():
            if not pause.hitl_id.startswith(REMAINDER) and standing(pause, now) not in OVER:
                pauses, size = found.get(pause.flow, PauseTotals(0, 0))
                size += len(encoded(pause.question)) + len(pause.tape) + len(encoded(pause.answer))
                found[pause.flow] = PauseTotals(pauses + 1, size)
        return found

    async def _move(
        self,
        hitl_id: str,
        decide: Callable[[Pause], tuple[Reply, Pause]],
        *,
        question: bool = False,
    ) -> Reply | None:
        if (pause := self._pauses.get(hitl_id)) is None:
            return None
        reply, self._pauses[hitl_id] = decide(pause)
        return reply

    async def _move_session(self, flow: str, session_id: str, but: str, step: Step) -> int:
        return self._move_all(
            lambda pause: (
                step(pause)
                if (pause.flow, pause.session_id) == (flow, session_id) and pause.exchange != but
                else None
            )
        )

    async def _move_due(self, now: float, step: Step) -> int:
        return self._move_all(step)

    async def _remove_remains(self, before: float) -> int:
        return self._remove_all(lambda one: one.state in OVER and one.expires_at <= before)

    async def _remove(self, sought: Mapping[PauseKey, Collection[str]], flow: str | None) -> int:
        return self._remove_all(
            lambda pause: (
                flow in {None, pause.flow}
                and any(getattr(pause, name) in values for name, values in sought.items())
            )
        )

    async def _remove_own(self, hitl_id: str, owner: str) -> None:
        self._remove_all(lambda pause: (pause.hitl_id, pause.owner) == (hitl_id, owner))

    def _live(self) -> list[Pause]:
        live = (pause for pause in self._pauses.values() if pause.state not in OVER)
        return sorted(live, key=lambda pause: (pause.created_at, pause.hitl_id))

    def _move_all(self, step: Step) -> int:
        steps = ((hitl_id, step(pause)) for hitl_id, pause in self._pauses.items())
        moved = {hitl_id: after for hitl_id, after in steps if after is not None}
        self._pauses |= moved
        return len(moved)

    def _remove_all(self, condition: Callable[[Pause], bool]) -> int:
        found = [hitl_id for hitl_id, pause in self._pauses.items() if condition(pause)]
        for hitl_id in found:
            del self._pauses[hitl_id]
        return len(found)


class MemoryLeases:
    """Leases in a dictionary: key to token and end, in seconds of `clock`.

    While `away` every call fails as it would with Redis out of reach; `calls` counts them.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        self.away = False
        self.calls = 0
        self._clock = clock

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a free key, or extend an own one, for so many milliseconds from now."""
        self._call()
        now = self._clock()
        holder, ends = self.held.get(key, (token, now))
        if holder != token and ends > now:
            return False
        self.held[key] = (token, now + ms / 1000)
        return True

    async def release(self, key: str, token: str) -> None:
        """Free a key, if this token holds it."""
        self._call()
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def _call(self) -> None:
        self.calls += 1
        if self.away:
            raise EffectFailed(Fault("lock_unavailable", retryable=True))


_FEW_PINS: Final = 1_024
"""Conversations after which pins that have ended are looked for again."""
_COUNTED: Final = 5_000
"""Pins that are counted without a pause: a millisecond."""


class _HeldPin(msgspec.Struct, frozen=True, gc=False):
    """A pin in a dictionary, without what tuples and ordered dictionaries cost beside it."""

    flow: str
    stack: PinnedStack
    version: str
    since: int
    until: float


def _memory_key(flow: str, conversation: str) -> bytes:
    return blake2b(pin_key(flow, conversation).encode(), digest_size=16).digest()


class MemoryPins:
    """Pins in a dictionary: at most `most`, those not read for the longest go first.

    Each takes some 200 bytes. Those that have ended go with the next thousand conversations.
    """

    def __init__(self, wall: Callable[[], float] = time.time, *, most: int = 100_000) -> None:
        self._wall = wall
        self._most = most
        self._purge_above = min(most, _FEW_PINS)
        self._pins: dict[bytes, _HeldPin] = {}
        self._releases: dict[str, str] = {}

    @property
    def size(self) -> int:
        """How many conversations have a pin."""
        return len(self._pins)

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin of a conversation, `pin` where it has none; it holds for `seconds`."""
        key, now = _memory_key(flow, conversation), self._wall()
        held = self._pins.pop(key, None)
        if held is not None and held.until > now:
            pin = Pin(held.stack, held.version, held.since)
        self._pins[key] = _HeldPin(flow, pin.stack, pin.version, pin.since, now + seconds)
        if len(self._pins) > self._purge_above:
            self._purge(now)
        return pin

    async def move(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Replace the pin of a conversation."""
        self._pins.pop(_memory_key(flow, conversation), None)
        await self.hold(flow, conversation, pin, seconds)

    async def count(self) -> Mapping[str, PinCount]:
        """Count the pins that hold now, by flow."""
        found, pins, now = Counter[tuple[str, str]](), list(self._pins.values()), self._wall()
        for first in range(0, len(pins), _COUNTED):
            part = pins[first : first + _COUNTED]
            found.update((one.flow, one.stack) for one in part if one.until > now)
            await asyncio.sleep(0)
        return pins_by_flow(found)

    async def release(self, flow: str, stack: PinnedStack | None = None) -> PinCount:
        """Remove a flow's pins, all or those to one stack; returns how many held."""
        found, now = Counter[tuple[str, str]](), self._wall()
        for key, held in list(self._pins.items()):
            if held.flow == flow and stack in {None, held.stack}:
                del self._pins[key]
                found[flow, held.stack] += held.until > now
        self._releases[flow] = uuid4().hex
        return pins_by_flow(found).get(flow, PinCount())

    async def released(self) -> Mapping[str, str]:
        """Return the mark of each flow's last release."""
        return dict(self._releases)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def _purge(self, now: float) -> None:
        """Drop the oldest that have ended and, if there are too many, some of the others.

        One at a time each new conversation would cost a search for the front of the dictionary.
        """
        excess = len(self._pins) - self._most
        excess += self._most // 64 if excess > 0 else 0
        old: list[bytes] = []
        for key, held in self._pins.items():
            if held.until > now and len(old) >= excess:
                break
            old.append(key)
        for key in old:
            del self._pins[key]
        self._purge_above = min(self._most, len(self._pins) + _FEW_PINS)


class MemorySharedState:
    """Notes and spending in dictionaries; spending of the last day alone."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._notes: dict[str, tuple[BreakerNote, float]] = {}
        self._day = 0
        self._spent: dict[str, Spending] = {}

    async def update_notes(self, updates: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Replace the notes that are as expected; returns all notes there are then, by key."""
        return self.update_now(updates)

    def update_now(self, updates: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Do so without waiting."""
        now = self._wall()
        self._notes = {
            key: held for key, held in self._notes.items() if held[1] > now - NOTE_SECONDS
        }
        for update in updates:
            held = self._notes.get(update.key)
            if replaces(update, held[0].mark if held else ""):
                self._notes[update.key] = (update.note, now + update.note.left)
        return {
            key: msgspec.structs.replace(note, left=max(until - now, 0.0))
            for key, (note, until) in self._notes.items()
        }

    async def report_spending(self, day: int, router: str, own: Spending) -> Spending:
        """Record all that one router has spent in a day; returns what all of them have."""
        if day > self._day:
            self._day, self._spent = day, {}
        if day == self._day:
            self._spent[router] = own
        return total(list(self._spent.values()))

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""
