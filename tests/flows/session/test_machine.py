"""A conversation changes stacks at any turn, breaks off anywhere, and loses or doubles nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from contract.errors import Fault
from contract.flows.session import SessionOptions, SessionRequest, lock_key
from contract.model import Chunk
from cutover.wiring.sessions import StoredSessions
from effects.memory import InMemoryMemory
from effects.model import Fail, Hang, Step
from effects.stores import MemoryConversations, MemoryPauses, ProcessLocks
from effects.tape import Exchange, Tape
from graph_impl import FLOWS as GRAPH
from graph_impl.session import session
from graph_impl.threads import Threads, opened_threads
from legacy import FLOWS as LEGACY
from router.serving.run import Run
from router.serving.stack import LocalStack
from router.stack import RunOutcome, StackName
from tests.support.flow_runs import FOREVER, begin, record, replay
from tests.support.postgres import own_schema
from tests.support.session_turns import SESSION_ID, House, Saying, said, shown

Result = TypeVar("Result")

OPTIONS = SessionOptions(unknown_session="create", extract_from=2)
LEFT = RunOutcome("cancelled")

stacks = st.sampled_from(["legacy", "graph"])
ends = st.sampled_from(["leaves", "fails", "crashes"])


@dataclass
class Live:
    """What a deployment's calls reach."""

    house: House
    locks: ProcessLocks = field(default_factory=ProcessLocks)

    @property
    def conversations(self) -> MemoryConversations:
        """Turns."""
        return self.house.conversations

    @property
    def memory(self) -> InMemoryMemory:
        """What was learnt."""
        return self.house.memory


class Conversing(RuleBasedStateMachine):
    """Both stacks on one house, the graph with threads in a file, and a list of what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.house = House()
        self.known: list[tuple[str, str]] = []
        self.learnt: list[str] = []
        self.number = 0
        self.address = self.where()
        self.open()

    def where(self) -> str:
        """Say where the threads are."""
        return f"sqlite:///{Path(self.folder.name) / 'threads.db'}"

    def open(self) -> None:
        """Open the threads, and the stacks on them."""
        self.opened = AsyncExitStack()
        entering = self.opened.enter_async_context(opened_threads(self.address))
        self.threads: Threads = self.run(entering)
        flows = {**GRAPH, "session": session(threads=self.threads)}
        self.stacks: dict[StackName, LocalStack] = {
            "legacy": LocalStack("legacy", LEGACY, "l1"),
            "graph": LocalStack("graph", flows, "g1", self.threads.forget),
        }

    def run(self, awaited: Awaitable[Result]) -> Result:
        """Await something."""

        async def main() -> Result:
            return await awaited

        return self.runner.run(main())

    def teardown(self) -> None:
        """Close everything."""
        self.run(self.opened.aclose())
        self.runner.close()
        self.folder.cleanup()

    def turn(self, *steps: Step) -> Saying:
        """Say the next thing; without steps it is answered, and a fact is learnt."""
        self.number += 1
        fact = f'["fact {self.number}"]'
        return Saying(
            body=SessionRequest(message=f"said {self.number}", session_id=SESSION_ID, user_id="u"),
            house=self.house,
            options=OPTIONS,
            answers=(steps or (Chunk(text="heard "), Chunk(text=str(self.number))),),
            learnt=(Chunk(text=fact),),
        )

    @rule(stack=stacks)
    def answered(self, stack: StackName) -> None:
        """Someone is answered; the other stack's shadow follows, and touches nothing."""
        turn = self.turn()
        other = self.stacks["graph" if stack == "legacy" else "legacy"]
        before = self.run(said(self.threads, SESSION_ID))
        served, _ = self.run(record(self.stacks[stack], turn))
        assert served.ended[0] == "completed"
        assert served.world.count("memory.write") == 1
        kept = self.run(said(self.threads, SESSION_ID))
        assert (kept == before) is (stack == "legacy")
        replayed = self.run(replay(other, turn, served.tape))
        assert replayed.frames == served.frames
        assert self.run(said(self.threads, SESSION_ID)) == kept
        self.known += [("user", turn.body.message), ("assistant", f"heard {self.number}")]
        self.learnt.append(f"fact {self.number}")
        if stack == "graph":
            assert kept == self.stored()

    @rule(stack=stacks, how=ends)
    def interrupted_tape(self, stack: StackName, how: str) -> None:
        """The client leaves, the provider fails, or the process dies, in the middle of it."""
        last = Fail(Fault("model_truncated")) if how == "fails" else Hang()
        turn = self.turn(Chunk(text="not to the end"), last)
        before = self.run(said(self.threads, SESSION_ID))
        self.run(self.break_off(self.stacks[stack], turn))
        assert self.run(said(self.threads, SESSION_ID)) == before
        self.known.append(("user", turn.body.message))
        if how == "crashes":
            self.restart()

    async def break_off(self, stack: LocalStack, turn: Saying) -> None:
        """Read up to the first text, and leave."""
        exchange = turn.world().exchange(Tape())
        drive = begin(stack, turn, exchange)
        await spoken(drive)
        drive.fence(LEFT)
        assert await drive.wait_stopped(FOREVER)
        await exchange.close()

    @rule(first=stacks)
    def taken_over(self, first: StackName) -> None:
        """One stack fails in the middle, the other one ends the stream on the same tape."""
        turn = self.turn()
        self.run(self.take_over(first, turn))
        self.known += [("user", turn.body.message), ("assistant", f"heard {self.number}")]
        self.learnt.append(f"fact {self.number}")
        if first == "legacy":
            assert self.run(said(self.threads, SESSION_ID)) == self.stored()

    async def take_over(self, first: StackName, turn: Saying) -> None:
        """Fence a run after its first text, and let another go on."""
        exchange: Exchange = turn.world().exchange(Tape())
        failed = begin(self.stacks[first], turn, exchange)
        await spoken(failed)
        failed.fence(LEFT)
        second = self.stacks["graph" if first == "legacy" else "legacy"]
        drive = begin(second, turn, exchange, "fallback")
        assert await drive.wait_stopped(FOREVER)
        assert drive.complete
        await exchange.close()
        had = [frame.data for frame in failed.frames]
        assert [frame.data for frame in drive.frames][: len(had)] == had

    @rule()
    def restart(self) -> None:
        """Close the threads, and open them again."""
        self.run(self.opened.aclose())
        self.open()

    @rule()
    def deleted(self) -> None:
        """Delete the session: nothing is left, nor anywhere learnt."""
        sessions = StoredSessions(Live(self.house), self.stacks, MemoryPauses())
        found = self.run(sessions.forget(SESSION_ID, lock=lock_key(SESSION_ID)))
        assert found is bool(self.known)
        self.known, self.learnt = [], []
        assert self.run(said(self.threads, SESSION_ID)) is None

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        """The store holds what was said, and memory what was learnt."""
        assert [(role, content) for _, role, content in self.stored()] == self.known
        assert [entry.text for entry in self.house.memory.entries] == self.learnt

    def stored(self) -> list[tuple[str, str, str]]:
        """Read the store."""
        return shown(self.house.conversations.turns)


class ConversingOnPostgres(Conversing):
    """The same with threads in PostgreSQL."""

    dsn = ""

    def where(self) -> str:
        """Make a schema of its own."""
        self.schema = AsyncExitStack()
        return self.run(self.schema.enter_async_context(own_schema(self.dsn)))

    def teardown(self) -> None:
        """Drop the schema, too."""
        self.run(self.opened.aclose())
        self.run(self.schema.aclose())
        self.runner.close()
        self.folder.cleanup()


async def spoken(drive: Run) -> None:
    """Wait for the first text, or the end."""
    while drive.outcome is None and not any(drive.text_of(frame) for frame in drive.frames):
        await drive.changed.wait()


@pytest.mark.untraced
@pytest.mark.slow
def test_any_history_is_kept_in_a_file() -> None:
    """Turns, breaks, takeovers, restarts and deletions in any order, threads in SQLite."""
    run_state_machine_as_test(Conversing, settings=settings(stateful_step_count=12))


@pytest.mark.slow
@pytest.mark.sockets
def test_any_history_is_kept_in_postgres(postgres_dsn: str) -> None:
    """The same in PostgreSQL."""
    ConversingOnPostgres.dsn = postgres_dsn
    run_state_machine_as_test(
        ConversingOnPostgres, settings=settings(max_examples=8, stateful_step_count=10)
    )
