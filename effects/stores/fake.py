"""Conversations in this process: the fake of the port, and enough for a demonstration."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, assert_never

import msgspec

from contract.errors import EffectFailed, Fault
from effects.stores.pauses import transitions
from effects.stores.pauses.pause import ClaimReply, ExpireReply, Pause, RespondReply, Swept, Waiting
from effects.stores.shared_state import (
    KEEP_SECONDS,
    BreakerNote,
    NoteUpdate,
    Spending,
    pin_key,
    takes_place,
    total,
)
from effects.stores.turns import ErasedTurns, check_ids, check_turn, same
from effects.stores.values import require_storable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from contract.human import HumanAnswer
    from contract.stores import Turn
    from effects.stores.shared_state import Pin
    from effects.stores.values import DataSubject


class MemoryConversations:
    """Turns in the order they were stored; gone with the process."""

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns: dict[str, Turn] = {}
        for turn in turns:
            check_turn(turn)
            self._turns[turn.message_id] = turn

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Everything stored, oldest first."""
        return tuple(self._turns.values())

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Look a turn up by its id."""
        check_ids(message_id)
        return self._turns.get(message_id)

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn; an equal one again is fine, False when the id belongs to another."""
        check_turn(turn)
        return same(self._turns.setdefault(turn.message_id, turn), turn)

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read up to `limit` turns stored before a message, oldest first."""
        check_ids(chat_id, before)
        return recent(self._before(chat_id, before), limit)

    async def forget(self, whose: DataSubject) -> ErasedTurns:
        """Remove somebody's turns and the replies to them."""
        check_ids(whose.value)
        found = [turn for turn in self._turns.values() if self._is_of(turn, whose)]
        for turn in found:
            del self._turns[turn.message_id]
        return ErasedTurns(len(found), frozenset(turn.chat_id for turn in found if turn.chat_id))

    def _is_of(self, turn: Turn, whose: DataSubject) -> bool:
        match whose.kind:
            case "chat":
                return turn.chat_id == whose.value
            case "message":
                return whose.value in {turn.message_id, turn.reply_to}
            case "user":
                asked = self._turns.get(turn.reply_to or "")
                return whose.value in {turn.user_id, asked.user_id if asked else None}
            case _:
                assert_never(whose.kind)

    def _before(self, chat_id: str, before: str) -> list[Turn]:
        earlier: list[Turn] = []
        for turn in self._turns.values():
            if turn.message_id == before:
                break
            if turn.chat_id == chat_id:
                earlier.append(turn)
        return earlier


def recent(turns: list[Turn], limit: int) -> tuple[Turn, ...]:
    """Keep the last `limit` of a chat's turns, and of several replies to one message the newest."""
    kept: list[Turn] = []
    answered: set[str] = set()
    for turn in reversed(turns):
        if len(kept) >= limit:
            break
        if turn.role == "assistant" and turn.reply_to is not None:
            if turn.reply_to in answered:
                continue
            answered.add(turn.reply_to)
        kept.append(turn)
    return tuple(reversed(kept))


class MemoryPauses:
    """Pauses by id; gone with the process. `clock` gives seconds since the Unix epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pauses: dict[str, Pause] = {}

    async def open(self, pause: Pause) -> bool:
        """Store a pause; False when the id is taken."""
        transitions.check_pause(pause)
        return pause.hitl_id not in self._pauses and self._keep(pause)

    async def keep_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        pause = self._find(hitl_id)
        return self._keep(pause and transitions.keep_tape(pause, tape, self._clock()))

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        pause = self._find(hitl_id)
        return None if pause is None else transitions.seen(pause, self._clock())

    async def respond(self, hitl_id: str, answer: HumanAnswer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        pause = self._find(hitl_id)
        if pause is None:
            return "unknown"
        reply, after = transitions.respond(pause, answer, self._clock())
        self._keep(after)
        return reply

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it."""
        pause = self._find(hitl_id, owner)
        if pause is None:
            return "unknown"
        reply, after = transitions.claim(pause, owner, lease_s, self._clock())
        self._keep(after)
        return reply

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim; False when it has been lost. A tape holds what was done so far."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.renew(pause, owner, lease_s, self._clock(), tape))

    async def give_back(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let somebody else continue, from the tape if there is one; False if not its owner."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.give_back(pause, owner, tape))

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        pause = self._find(hitl_id, owner)
        return self._keep(pause and transitions.finish(pause, owner))

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause that nobody is continuing."""
        pause = self._find(hitl_id)
        if pause is None:
            return "unknown"
        reply, after = transitions.expire_one(pause, self._clock())
        self._keep(after)
        return reply

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session, but those of one exchange."""
        require_storable("store_failed", flow, session_id, but)
        now = self._clock()
        theirs = [
            pause
            for pause in self._pauses.values()
            if (pause.flow, pause.session_id) == (flow, session_id) and pause.exchange != but
        ]
        return sum(self._keep(transitions.pass_by(pause, now)) for pause in theirs)

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        require_storable("store_failed", session_id, flow)
        now = self._clock()
        pauses = [transitions.seen(pause, now) for pause in self._pauses.values()]
        return tuple(
            msgspec.structs.replace(pause, tape=b"")
            for pause in sorted(pauses, key=lambda pause: (pause.created_at, pause.hitl_id))
            if pause.state not in {"finished", "expired"}
            and session_id in {None, pause.session_id}
            and flow in {None, pause.flow}
        )

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first."""
        sizes = {pause.hitl_id: len(pause.tape) for pause in self._pauses.values()}
        return tuple(
            transitions.waiting(pause, sizes[pause.hitl_id]) for pause in await self.pending()
        )

    async def forget(
        self, exchanges: Collection[str], sessions: Collection[str], users: Collection[str] = ()
    ) -> int:
        """Remove the pauses of exchanges, sessions and users, tapes and all; returns how many."""
        require_storable("store_failed", *exchanges, *sessions, *users)
        found = [
            pause.hitl_id
            for pause in self._pauses.values()
            if pause.exchange in exchanges or pause.session_id in sessions or pause.user_id in users
        ]
        for hitl_id in found:
            del self._pauses[hitl_id]
        return len(found)

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        now = self._clock()
        due = [one for one in self._pauses.values() if transitions.is_due(one, now)]
        for pause in due:
            self._keep(transitions.over(pause, "expired"))
        gone = [one for one in self._pauses.values() if transitions.is_forgotten(one, now)]
        for pause in gone:
            del self._pauses[pause.hitl_id]
        return Swept(len(due), len(gone))

    def _find(self, hitl_id: str, owner: str = "") -> Pause | None:
        require_storable("store_failed", hitl_id, owner)
        return self._pauses.get(hitl_id)

    def _keep(self, pause: Pause | None) -> bool:
        if pause is None:
            return False
        self._pauses[pause.hitl_id] = pause
        return True


class MemoryLeases:
    """Leases in a dictionary: key to token and end, in seconds of `clock`.

    While `away` every call fails as it would with a keeper out of reach.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.held: dict[str, tuple[str, float]] = {}
        self.away = False
        self.asked = 0
        self._clock = clock

    async def hold(self, key: str, token: str, ms: int) -> bool:
        """Take a key nobody holds, or keep an own one, for so many milliseconds from now."""
        self._answer()
        now = self._clock()
        holder, ends = self.held.get(key, (token, now))
        if holder != token and ends > now:
            return False
        self.held[key] = (token, now + ms / 1000)
        return True

    async def let_go(self, key: str, token: str) -> None:
        """Give a key back, if this token holds it."""
        self._answer()
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]

    async def aclose(self) -> None:
        """Nothing is open."""

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise EffectFailed(Fault("lock_unavailable", retryable=True))


MOST = 100_000


class MemoryPins:
    """Pins in a dictionary: at most `most`, those not asked for the longest go first."""

    def __init__(self, wall: Callable[[], float] = time.time, *, most: int = MOST) -> None:
        self._wall = wall
        self._most = most
        self._pins: OrderedDict[str, tuple[Pin, float]] = OrderedDict()

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation, `pin` where it has none; kept for so many seconds."""
        key, now = pin_key(flow, conversation), self._wall()
        kept, until = self._pins.pop(key, (pin, now))
        held = kept if until > now else pin
        self._pins[key] = (held, now + seconds)
        if len(self._pins) > self._most:
            self._pins.popitem(last=False)
        return held

    async def aclose(self) -> None:
        """Nothing is open."""


class MemorySharedState:
    """Notes and sums in dictionaries; sums are of the last day alone."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._notes: dict[str, tuple[BreakerNote, float]] = {}
        self._day = 0
        self._spent: dict[str, Spending] = {}

    async def post(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        return self.put(posts)

    def put(self, posts: Sequence[NoteUpdate]) -> Mapping[str, BreakerNote]:
        """Do it at once."""
        now = self._wall()
        self._notes = {
            key: held for key, held in self._notes.items() if held[1] > now - KEEP_SECONDS
        }
        for post in posts:
            held = self._notes.get(post.key)
            if takes_place(post, held[0].mark if held else ""):
                self._notes[post.key] = (post.note, now + post.note.left)
        return {
            key: msgspec.structs.replace(note, left=max(until - now, 0.0))
            for key, (note, until) in self._notes.items()
        }

    async def spend(self, day: int, who: str, own: Spending) -> Spending:
        """Say what one has spent in a day, all told; gives what all have."""
        if day > self._day:
            self._day, self._spent = day, {}
        if day == self._day:
            self._spent[who] = own
        return total(list(self._spent.values()))

    async def aclose(self) -> None:
        """Nothing is open."""
