"""Stores of pauses against the fake and a plain model, under any sequence of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from contract.human import HumanAnswer
from effects.clock import ManualClock
from effects.stores import MemoryPauses, Pause, PauseStore, SqlPauses
from tests.support.postgres import own_schema

Result = TypeVar("Result")

LIFE = 100.0
KEPT = 86_400.0

ids = st.sampled_from(["h1", "h2", "h3"])
owners = st.sampled_from(["x1", "x2"])
answers = st.sampled_from([HumanAnswer("approve"), HumanAnswer("reject")])
sessions = st.sampled_from(["s1", "s2"])
flows = st.sampled_from(["f", "g"])
exchanges = st.sampled_from(["x", "y"])
tapes = st.sampled_from([b"longer", b"longer still"])
leases = st.sampled_from([5.0, 30.0, 150.0])


@dataclass
class Known:
    """What a careful reader would remember of one pause."""

    session: str
    expires: float
    answer: HumanAnswer | None = None
    holder: str = ""
    lease_ends: float = 0.0
    over: str = ""
    tape: bytes = b"tape"
    continued: bool = False
    flow: str = "f"
    exchange: str = "x"

    def running(self, now: float) -> bool:
        """Whether it is being continued."""
        return bool(self.holder) and now < self.lease_ends

    def go_on(self, tape: bytes | None) -> None:
        """Remember what was done after the answer."""
        if tape is not None:
            self.tape, self.continued = tape, True

    def settle(self, now: float) -> None:
        """Let time do what time does."""
        if not self.over and not self.running(now) and now >= self.expires:
            self.over, self.holder = "expired", ""

    def look(self, now: float) -> str:
        """Tell how it stands."""
        if self.over:
            return self.over
        if self.running(now):
            return "claimed"
        return "open" if self.answer is None else "answered"


class Pauses(RuleBasedStateMachine):
    """A store, the fake and a model, driven alike; they must answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.known: dict[str, Known] = {}
        self.stack = AsyncExitStack()
        self.stores: list[PauseStore] = [MemoryPauses(self.clock.time)]
        store = self.stack.enter_async_context(self.opened())
        self.stores.append(self.runner.run(_awaited(store)))

    def opened(self) -> AbstractAsyncContextManager[PauseStore]:
        """Open the store that is compared with the fake, on the machine's clock."""
        return SqlPauses.open_store(":memory:", self.clock.time)

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
        """Give what is known of a pause, as it stands now."""
        known = self.known.get(hitl_id)
        if known is not None:
            known.settle(self.clock.time())
        return known

    def read(self, hitl_id: str) -> Pause | None:
        """Read a pause from both stores."""
        return self.ask(lambda store: store.get(hitl_id))

    @rule(hitl_id=ids, session=sessions, flow=flows, exchange=exchanges)
    def open(self, hitl_id: str, session: str, flow: str, exchange: str) -> None:
        """Open a pause."""
        now = self.clock.time()
        pause = Pause(
            hitl_id=hitl_id,
            exchange=exchange,
            flow=flow,
            stack="legacy",
            session_id=session,
            tape=b"tape",
            created_at=now,
            expires_at=now + LIFE,
        )
        assert self.ask(lambda store: store.open(pause)) == (hitl_id not in self.known)
        self.known.setdefault(hitl_id, Known(session, now + LIFE, flow=flow, exchange=exchange))

    @rule(hitl_id=ids, answer=answers)
    def respond(self, hitl_id: str, answer: HumanAnswer) -> None:
        """Answer a pause."""
        reply = self.ask(lambda store: store.respond(hitl_id, answer))
        known = self.find(hitl_id)
        if known is None:
            assert reply == "unknown"
        elif known.over == "expired":
            assert reply == "expired"
        elif known.answer is None:
            assert reply == "accepted"
            known.answer = answer
        else:
            assert reply == ("same" if known.answer == answer else "conflict")

    @rule(hitl_id=ids, owner=owners, lease=leases)
    def claim(self, hitl_id: str, owner: str, lease: float) -> None:
        """Claim a pause."""
        reply = self.ask(lambda store: store.claim(hitl_id, owner, lease))
        known = self.find(hitl_id)
        if known is None:
            assert reply == "unknown"
            return
        look = known.look(self.clock.time())
        assert reply == {"open": "unanswered", "answered": "claimed", "claimed": "taken"}.get(
            look, look
        )
        if reply == "claimed":
            known.holder, known.lease_ends = owner, self.clock.time() + lease

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
        """Extend a claim."""
        renewed = self.ask(lambda store: store.renew(hitl_id, owner, lease, tape))
        known = self.find(hitl_id)
        assert renewed == (known is not None and not known.over and known.holder == owner)
        if renewed and known is not None:
            known.lease_ends = self.clock.time() + lease
            known.go_on(tape)

    @rule(hitl_id=ids, owner=owners, tape=tapes | st.none())
    def give_back(self, hitl_id: str, owner: str, tape: bytes | None) -> None:
        """Give a claim back."""
        known = self.known.get(hitl_id)
        given = self.ask(lambda store: store.release(hitl_id, owner, tape))
        assert given == (known is not None and known.holder == owner)
        if given and known is not None:
            known.holder = ""
            known.go_on(tape)

    @rule(hitl_id=ids, owner=owners)
    def finish(self, hitl_id: str, owner: str) -> None:
        """Finish a pause."""
        known = self.known.get(hitl_id)
        done = self.ask(lambda store: store.finish(hitl_id, owner))
        assert done == (known is not None and known.holder == owner)
        if done and known is not None:
            known.over, known.holder = "finished", ""

    @rule(flow=flows, session=sessions, but=exchanges)
    def new_turn(self, flow: str, session: str, but: str) -> None:
        """Expire a flow's pauses of a session, but those of the exchange itself."""
        now = self.clock.time()
        passed = [
            known
            for known in self.known.values()
            if (known.flow, known.session) == (flow, session)
            and known.exchange != but
            and not known.over
            and now < known.expires
        ]
        assert self.ask(lambda store: store.expire_session(flow, session, but)) == len(passed)
        for known in passed:
            if known.running(now):
                known.expires = now
            else:
                known.over, known.holder = "expired", ""

    @rule(hitl_id=ids)
    def expire(self, hitl_id: str) -> None:
        """Expire one pause."""
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
            known.over, known.holder = "expired", ""

    @rule(seconds=st.sampled_from([1.0, 10.0, 60.0, KEPT]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        """Sweep; nothing is left that has been over for a day."""
        self.ask(lambda store: store.sweep())
        now = self.clock.time()
        for hitl_id in list(self.known):
            known = self.find(hitl_id)
            if known is not None and known.over and now >= known.expires + KEPT:
                del self.known[hitl_id]

    @invariant()
    def all_stand_alike(self) -> None:
        """Every pause stands as the model says, and holds its tape just as long as it waits."""
        now = self.clock.time()
        for hitl_id, known in self.known.items():
            pause = self.read(hitl_id)
            assert pause is not None
            look = "expired" if _due(known, now) else known.look(now)
            tape = b"" if look in {"finished", "expired"} else known.tape
            assert (pause.state, pause.tape) == (look, tape)

    @rule(session=sessions | st.none(), flow=flows | st.none())
    def list(self, session: str | None, flow: str | None) -> None:
        """List what waits: what is not over, as both stores say."""
        self.ask(lambda store: store.pending(session, flow=flow))
        now = self.clock.time()
        waits = {
            hitl_id: len(known.tape)
            for hitl_id, known in self.known.items()
            if not known.over and not _due(known, now)
        }
        listed = self.ask(lambda store: store.waiting())
        assert {waiting.hitl_id: waiting.size for waiting in listed} == waits


def _due(known: Known, now: float) -> bool:
    return not known.over and not known.running(now) and now >= known.expires


async def _awaited(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


STEPS = settings(stateful_step_count=30)


@pytest.mark.untraced
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
        def opened(self) -> AbstractAsyncContextManager[PauseStore]:
            return emptied(postgres_dsn, self.clock.time)

    fewer = settings(STEPS, max_examples=settings().max_examples // 4)
    run_state_machine_as_test(InPostgres, settings=fewer)


@asynccontextmanager
async def emptied(dsn: str, clock: Callable[[], float]) -> AsyncIterator[PauseStore]:
    """Open an empty store in a schema of its own."""
    async with (
        own_schema(dsn) as place,
        SqlPauses.open_store(place, clock) as pauses,
    ):
        yield pauses
