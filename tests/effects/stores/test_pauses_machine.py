"""Pauses: every store against a plain model, whatever is called in whichever order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from contract.human import Form, HumanAnswer, OpenQuestion
from effects.local import ManualClock
from effects.stores import MemoryPauses, Pause, PauseStore, SqlPauses, Waiting
from tests.support.postgres import own_schema

Result = TypeVar("Result")

LIFE = 100.0
KEPT = 86_400.0
QUESTION = OpenQuestion(Form("确认", ()), "confirm", None)

ids = st.sampled_from(["h1", "h2"])
owners = st.sampled_from(["x1", "x2"])
answers = st.sampled_from([HumanAnswer("approve"), HumanAnswer("reject")])
sessions = st.sampled_from(["s1", "s2"])
flows = st.sampled_from(["f", "g"])
exchanges = st.sampled_from(["x", "y"])
users = st.sampled_from(["ann", "ben"])
tapes = st.sampled_from([b"longer", b"longer still"])
leases = st.sampled_from([5.0, 30.0, 150.0])


@dataclass
class Known:
    """What a careful reader would remember of one pause."""

    pause: Pause
    expires: float
    answer: HumanAnswer | None = None
    holder: str = ""
    lease_ends: float = 0.0
    over: str = ""
    swept: bool = False
    tape: bytes = b"tape"
    continued: bool = False

    def running(self, now: float) -> bool:
        """Whether it is being continued."""
        return bool(self.holder) and now < self.lease_ends

    def waits(self, now: float) -> bool:
        """Whether it is not over, and its time is not either."""
        return not self.over and (self.running(now) or now < self.expires)

    def go_on(self, tape: bytes | None) -> None:
        """Remember what was done after the answer."""
        if tape is not None:
            self.tape, self.continued = tape, True

    def end(self, how: str) -> None:
        """End it, in the stores too."""
        self.over, self.holder, self.swept = how, "", True

    def settle(self, now: float) -> None:
        """Let time do what time does."""
        if not self.over and not self.waits(now):
            self.over = "expired"  # its owner may still finish it, until a store has noticed

    def state(self, now: float) -> str:
        """Return how it stands."""
        if not self.waits(now):
            return self.over or "expired"
        if self.running(now):
            return "claimed"
        return "open" if self.answer is None else "answered"


class Pauses(RuleBasedStateMachine):
    """The fake, a store and a model, driven alike; they must answer alike."""

    place = ":memory:"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.known: dict[str, Known] = {}
        self.stack = AsyncExitStack()
        self.stores: list[PauseStore] = [MemoryPauses(self.clock.time)]
        self.stores.append(self.runner.run(self.opened()))

    async def opened(self) -> PauseStore:
        """Open the store that is compared with the fake, on the same clock."""
        place = self.place
        if place != ":memory:":
            place = await self.stack.enter_async_context(own_schema(place))
        return await self.stack.enter_async_context(SqlPauses.open_store(place, self.clock.time))

    def teardown(self) -> None:
        """Close the store and the loop."""
        self.runner.run(_awaited(self.stack.aclose()))
        self.runner.close()

    def ask(self, call: Callable[[PauseStore], Awaitable[Result]]) -> Result:
        """Call both stores; they agree."""
        left, right = (self.runner.run(_awaited(call(store))) for store in self.stores)
        assert left == right
        return left

    def find(self, hitl_id: str) -> Known | None:
        """Return what is known of a pause, as it stands now."""
        known = self.known.get(hitl_id)
        if known is not None:
            known.settle(self.clock.time())
        return known

    def read(self, hitl_id: str) -> Pause | None:
        """Read a pause from both stores."""
        return self.ask(lambda store: store.get(hitl_id))

    @initialize(
        session=sessions, flow=flows, exchange=exchanges, answer=answers, owner=owners, lease=leases
    )
    def begin(
        self,
        session: str,
        flow: str,
        exchange: str,
        answer: HumanAnswer,
        owner: str,
        lease: float,
    ) -> None:
        """Begin with one that waits and one that is being continued."""
        self.open("h2", "s1", "f", "x", "ben")
        self.clock.advance(1.0)
        self.open("h1", session, flow, exchange, "ann")
        self.respond("h2", answer)
        self.claim("h2", owner, lease)

    @rule(hitl_id=ids, session=sessions | st.none(), flow=flows, exchange=exchanges, user=users)
    def open(self, hitl_id: str, session: str | None, flow: str, exchange: str, user: str) -> None:
        """Open a pause; the first one with its id stays."""
        now = self.clock.time()
        pause = Pause(
            hitl_id=hitl_id,
            exchange=exchange,
            flow=flow,
            stack="legacy",
            session_id=session,
            user_id=user,
            question=QUESTION,
            tape=b"tape",
            created_at=now,
            expires_at=now + LIFE,
        )
        assert self.ask(lambda store: store.open(pause)) == (hitl_id not in self.known)
        self.known.setdefault(hitl_id, Known(pause, now + LIFE))

    @rule(hitl_id=ids, answer=answers)
    def respond(self, hitl_id: str, answer: HumanAnswer) -> None:
        """Answer a pause: once; also while it is continued and after, an equal answer is none."""
        reply = self.ask(lambda store: store.respond(hitl_id, answer))
        known = self.find(hitl_id)
        if known is None:
            assert reply == "unknown"
        elif known.over == "expired":
            assert reply == "expired"
            known.end("expired")
        elif known.answer is None:
            assert reply == "accepted"
            known.answer = answer
        else:
            assert reply == ("same" if known.answer == answer else "conflict")

    @rule(hitl_id=ids, owner=owners, lease=leases)
    def claim(self, hitl_id: str, owner: str, lease: float) -> None:
        """Claim a pause."""
        reply = self.ask(lambda store: store.claim(hitl_id, owner, lease))
        known, now = self.find(hitl_id), self.clock.time()
        if known is None:
            assert reply == "unknown"
            return
        state = known.state(now)
        replies = {"open": "unanswered", "answered": "claimed", "claimed": "taken"}
        assert reply == replies.get(state, state)
        if reply == "expired":
            known.end("expired")
        elif reply == "claimed":
            known.holder, known.lease_ends = owner, now + lease

    @rule(hitl_id=ids, tape=tapes)
    def keep_tape(self, hitl_id: str, tape: bytes) -> None:
        """Replace the tape."""
        kept = self.ask(lambda store: store.replace_tape(hitl_id, tape))
        known = self.find(hitl_id)
        assert kept == (known is not None and not known.over and not known.continued)
        if kept and known is not None:
            known.tape = tape

    @rule(hitl_id=ids, owner=owners, lease=leases, tape=tapes | st.none())
    def renew(self, hitl_id: str, owner: str, lease: float, tape: bytes | None) -> None:
        """Extend a claim, also a late one."""
        renewed = self.ask(lambda store: store.renew(hitl_id, owner, lease, tape))
        known = self.find(hitl_id)
        assert renewed == (known is not None and not known.over and known.holder == owner)
        if renewed and known is not None:
            known.lease_ends = self.clock.time() + lease
            known.go_on(tape)

    @rule(hitl_id=ids, owner=owners, tape=tapes | st.none())
    def give_back(self, hitl_id: str, owner: str, tape: bytes | None) -> None:
        """Give a claim back, with what was done."""
        known = self.known.get(hitl_id)
        given = self.ask(lambda store: store.release(hitl_id, owner, tape))
        assert given == (known is not None and known.holder == owner)
        if given and known is not None:
            known.holder = ""
            known.go_on(tape)

    @rule(hitl_id=ids, owner=owners)
    def finish(self, hitl_id: str, owner: str) -> None:
        """Finish a pause, however late."""
        known = self.known.get(hitl_id)
        done = self.ask(lambda store: store.finish(hitl_id, owner))
        assert done == (known is not None and known.holder == owner)
        if done and known is not None:
            known.end("finished")

    @rule(flow=flows, session=sessions, but=exchanges)
    def new_turn(self, flow: str, session: str, but: str) -> None:
        """Expire a flow's pauses of a session, but those of the exchange itself.

        One that is being continued can still be finished; given back it expires.
        """
        now = self.clock.time()
        passed = [
            known
            for known in self.known.values()
            if (known.pause.flow, known.pause.session_id) == (flow, session)
            and known.pause.exchange != but
            and not known.over
            and now < known.expires
        ]
        assert self.ask(lambda store: store.expire_session(flow, session, but)) == len(passed)
        for known in passed:
            if known.running(now):
                known.expires = now
            else:
                known.end("expired")

    @rule(hitl_id=ids)
    def expire(self, hitl_id: str) -> None:
        """Expire one pause, unless it is being continued."""
        reply = self.ask(lambda store: store.expire(hitl_id))
        known = self.find(hitl_id)
        if known is None:
            assert reply == "unknown"
        elif known.over:
            assert reply == "over"
        elif known.running(self.clock.time()):
            assert reply == "taken"
        else:
            assert reply == "expired"
            known.end("expired")

    @rule(hitl_id=ids, until=st.sampled_from(["lease", "expiry", "remains"]), early=st.booleans())
    def wait(self, hitl_id: str, until: str, *, early: bool) -> None:
        """Wait for what time does to a pause, to the moment or a second less."""
        known = self.known.get(hitl_id)
        if known is not None:
            moments = {"lease": known.lease_ends, "remains": known.expires + KEPT}
            seconds = moments.get(until, known.expires) - self.clock.time() - early
            self.clock.advance(max(seconds, 0.0))

    @rule()
    def sweep(self) -> None:
        """Expire what is due; remove what has been over for a day."""
        now = self.clock.time()
        for known in self.known.values():
            known.settle(now)
        due = [known for known in self.known.values() if known.over and not known.swept]
        gone = [
            one for one, known in self.known.items() if known.over and known.expires + KEPT <= now
        ]
        assert self.ask(lambda store: store.sweep()) == (len(due), len(gone))
        for known in due:
            known.end("expired")
        for hitl_id in gone:
            del self.known[hitl_id]

    @rule(exchange=exchanges, session=sessions | st.none(), user=users | st.none())
    def erase(self, exchange: str, session: str | None, user: str | None) -> None:
        """Erase by exchange, session and user."""
        gone = [
            hitl_id
            for hitl_id, known in self.known.items()
            if known.pause.exchange == exchange
            or (session is not None and known.pause.session_id == session)
            or known.pause.user_id == user
        ]
        sought = [{one} if one else set[str]() for one in (exchange, session, user)]
        assert self.ask(lambda store: store.erase(*sought)) == len(gone)
        for hitl_id in gone:
            del self.known[hitl_id]

    @invariant()
    def all_stand_alike(self) -> None:
        """Every pause stands as the model says, and holds what it does just as long as it waits."""
        now = self.clock.time()
        for hitl_id, known in self.known.items():
            pause = self.read(hitl_id)
            assert pause is not None
            state = known.state(now)
            assert (pause.state, pause.created_at) == (state, known.pause.created_at)
            if state == "claimed":
                ends = (known.holder, known.lease_ends, known.expires)
                assert (pause.owner, pause.leased_until, pause.expires_at) == ends
            held = (known.tape, QUESTION, known.answer) if known.waits(now) else (b"", None, None)
            assert (pause.tape, pause.question, pause.answer) == held

    @rule(session=sessions | st.none(), flow=flows | st.none())
    def list_all(self, session: str | None, flow: str | None) -> None:
        """List what is not over, oldest first: without tapes, or by their sizes alone."""
        now = self.clock.time()
        waits = sorted(
            (known.pause.created_at, hitl_id)
            for hitl_id, known in self.known.items()
            if known.waits(now)
        )
        found = [self.read(hitl_id) for _, hitl_id in waits]
        pauses = [pause for pause in found if pause is not None]
        listed = self.ask(lambda store: store.pending(session, flow=flow))
        assert list(listed) == [
            msgspec.structs.replace(pause, tape=b"")
            for pause in pauses
            if session in {None, pause.session_id} and flow in {None, pause.flow}
        ]
        waiting = self.ask(lambda store: store.waiting())
        assert list(waiting) == [
            msgspec.convert({**msgspec.structs.asdict(pause), "size": len(pause.tape)}, Waiting)
            for pause in pauses
        ]


async def _awaited(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


STEPS = settings(stateful_step_count=50)


@pytest.mark.slow
def test_sqlite_does_as_the_fake_does() -> None:
    """Whatever is called, in whichever order, at whatever time."""
    run_state_machine_as_test(Pauses, settings=STEPS)


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.sockets
def test_postgres_does_as_the_fake_does(postgres_dsn: str) -> None:
    """The same, with fewer examples: each call goes over a socket."""

    class InPostgres(Pauses):
        place = postgres_dsn

    fewer = settings(STEPS, max_examples=settings().max_examples // 4)
    run_state_machine_as_test(InPostgres, settings=fewer)
