"""Any sequence of steps, against a model of what a pause is."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cutover.records import PauseRecord
from effects.database import Database
from effects.pauses import Pauses
from rules.forms import HumanAnswer
from tests.effects.conftest import MovableClock

T = TypeVar("T")
LIFE, LEASE = 100.0, 30.0
ANSWERS = st.sampled_from(
    [HumanAnswer("approve"), HumanAnswer("reject"), HumanAnswer("edit", {"a": 1})]
)


class PauseMachine(RuleBasedStateMachine):
    """One pause, several who answer and continue it, time, and new turns."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = MovableClock()
        self.opened = AsyncExitStack()
        database = self.run(self.opened.enter_async_context(Database.open("sqlite+aiosqlite://")))
        self.store = Pauses(database, self.clock)
        self.expires_at = self.clock.now + LIFE
        self.run(self.store.store(self.pause()))
        self.state = "open"
        self.answer: HumanAnswer | None = None
        self.owners: list[str] = []
        self.until = 0.0
        self.begun: dict[str, bytes | None] = {}

    def pause(self) -> PauseRecord:
        """Return the pause as it is first stored."""
        return PauseRecord(
            id="q", flow="f", session="s", path="/", stack="legacy", request=b"r", tape=b"t",
            question={}, frames=[], expires_at=self.expires_at,
        )  # fmt: skip

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Carry out a step of the store."""
        return self.runner.run(step)

    def teardown(self) -> None:
        """Close the database and the loop."""
        self.run(self.opened.aclose())
        self.runner.close()

    @property
    def now(self) -> str:
        """What the pause is at this moment, by the model."""
        if self.state == "claimed" and self.until > self.clock.now:
            return "claimed"
        if self.state in {"open", "answered", "claimed"} and self.expires_at <= self.clock.now:
            return "expired"
        return "answered" if self.state == "claimed" else self.state

    @rule(seconds=st.sampled_from([1.0, LEASE - 1, LEASE, LIFE / 2]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.now += seconds

    @rule(answer=ANSWERS)
    def respond(self, answer: HumanAnswer) -> None:
        """The first answer is stored; expiry is said before any comparison."""
        reply = self.run(self.store.answer("q", answer))
        match self.now:
            case "open":
                assert reply == "stored"
                self.state, self.answer = "answered", answer
            case "expired":
                assert reply == "expired"
            case _:
                assert reply == ("same" if answer == self.answer else "different")

    @rule()
    def claim(self) -> None:
        """An answered pause is claimed once at a time."""
        got = self.run(self.store.claim("q", LEASE))
        if self.now == "answered":
            assert isinstance(got, PauseRecord)
            assert got.owner not in self.owners
            assert (got.tape, got.answer) == (b"t", self.answer)
            self.owners.append(got.owner)
            self.state, self.until = "claimed", self.clock.now + LEASE
        else:
            assert got == ("unanswered" if self.now == "open" else self.now)

    @precondition(lambda self: self.owners)
    @rule(step=st.sampled_from(["renew", "release", "finish", "k1", "k2"]), data=st.data())
    def act(self, step: str, data: st.DataObject) -> None:
        """Only the last owner can act, until the pause is done or claimed by another."""
        owner = data.draw(st.sampled_from(self.owners))
        owns = self.state == "claimed" and owner == self.owners[-1]
        match step:
            case "renew":
                assert self.run(self.store.renew("q", owner, LEASE)) == owns
                self.until = self.clock.now + LEASE if owns else self.until
            case "release":
                assert self.run(self.store.release("q", owner)) == owns
                self.state = "answered" if owns else self.state
            case "finish":
                assert self.run(self.store.finish("q", owner)) == owns
                self.state, self.begun = ("done", {}) if owns else (self.state, self.begun)
            case key:
                begun = self.run(self.store.begin_write("q", owner, key, "w", b"[]"))
                assert begun == (owns and key not in self.begun)
                if begun:
                    self.begun[key] = None

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def end_write(self, data: st.DataObject) -> None:
        """A result is noted also after its claim has lapsed: the write has happened."""
        key = data.draw(st.sampled_from(sorted(self.begun)))
        self.run(self.store.end_write("q", key, b"1"))
        self.begun[key] = b"1"

    @rule()
    def new_turn(self) -> None:
        """A new turn expires what is not claimed."""
        expired = self.run(self.store.expire_session("f", "s"))
        assert expired == (self.state in {"open", "answered"})
        if expired:
            self.state = "expired"

    @invariant()
    def agrees(self) -> None:
        """State and journal are the model's."""
        question = self.run(self.store.question("q"))
        assert question is not None
        assert question.state == self.now
        journal = self.run(self.store.journal("q"))
        assert {one.key: one.result for one in journal} == self.begun
        waits = self.run(self.store.open_of("f", "s"))
        assert (waits is not None) == (self.now in {"open", "answered", "claimed"})


@pytest.mark.slow
def test_a_pause_moves_as_its_model_does() -> None:
    """No sequence of steps answers twice, claims twice or begins a write twice."""
    run_state_machine_as_test(PauseMachine, settings=settings(stateful_step_count=25))
