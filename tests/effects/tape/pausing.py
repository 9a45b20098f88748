"""A flow that asks a human in its middle, written twice, and a shell that pauses and resumes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from contract.errors import Paused
from contract.human import Form, HumanAnswer, OpenQuestion
from contract.model import ModelCall, ToolCall, UserMessage
from contract.ports import Effects
from contract.records import RequestRecord
from effects.model import Step, says
from effects.stores import Pause, PauseStore
from effects.tape import Exchange, PauseOrigin, PausingHuman, Tape, TapeSession, resume
from effects.testing import World
from effects.tools.fake import ScriptedTools

REQUEST = RequestRecord(msgspec.Raw(b'{"message":"book it"}'), msgspec.Raw(b"{}"))
ROUNDS = 2
"""How many questions the flow asks, one after the other."""


class Said(msgspec.Struct, frozen=True):
    """A piece of text."""

    text: str


class Asked(msgspec.Struct, frozen=True):
    """A question went out."""

    hitl_id: str


Event = Said | Asked


def question(number: int) -> OpenQuestion:
    """Build the question of a round."""
    return OpenQuestion(Form(f"Book, step {number}?", ()), "confirm", session_id="s-1")


def prompt(text: str) -> ModelCall:
    """Build the model call of a round."""
    return ModelCall(model_id="m", messages=(UserMessage(text),))


async def looping(effects: Effects) -> AsyncIterator[Event]:
    """Ask model and tool, ask the human, and so on, in one loop."""
    word = "start"
    for number in range(ROUNDS):
        async for chunk in effects.model.stream("reply", prompt(f"{number} {word}")):
            if chunk.text:
                yield Said(f"{chunk.text}@{chunk.at}")
        await effects.tools.run("tool", ToolCall(f"call_{number}_0", "book", "{}"))
        hitl_id = await effects.human.open("ask", question(number))
        yield Asked(hitl_id)
        word = (await effects.human.answer("ask", hitl_id)).action
    yield Said(f"{word} by {await effects.ids.new('reply')}")


async def recursive(effects: Effects, number: int = 0, word: str = "start") -> AsyncIterator[Event]:
    """Do the same by recursion, with the tool running beside the model's stream."""
    if number == ROUNDS:
        yield Said(f"{word} by {await effects.ids.new('reply')}")
        return
    booking = asyncio.create_task(_book(effects, number))
    try:
        async for chunk in effects.model.stream("reply", prompt(f"{number} {word}")):
            if chunk.text:
                yield Said(f"{chunk.text}@{chunk.at}")
    finally:
        await asyncio.wait({booking})
    await booking
    hitl_id = await effects.human.open("ask", question(number))
    yield Asked(hitl_id)
    answer = await effects.human.answer("ask", hitl_id)
    async for event in recursive(effects, number + 1, answer.action):
        yield event


async def _book(effects: Effects, number: int) -> None:
    await effects.tools.run("tool", ToolCall(f"call_{number}_0", "book", "{}"))


STACKS: Mapping[str, Callable[[Effects], AsyncIterator[Event]]] = {
    "looping": looping,
    "recursive": recursive,
}


def speaks(call: ModelCall) -> list[Step]:
    """Answer a prompt with its own words, half a second each."""
    message = call.messages[0]
    assert isinstance(message, UserMessage)
    assert isinstance(message.content, str)
    return says(*message.content.split(), every=0.5)


@dataclass(frozen=True)
class Opened:
    """An open exchange: its human port, and the ports of its run."""

    human: PausingHuman
    effects: Effects


@dataclass(frozen=True)
class Part:
    """One way through an exchange: what the client got, and the question it ended in."""

    events: list[Event]
    paused: str | None
    exchange: Exchange
    run: TapeSession


async def played(stack: str, exchange: Exchange, run: TapeSession) -> Part:
    """Play a flow to its end or its pause; frames from before the answer are old and not sent."""
    events: list[Event] = []
    paused = None
    try:
        async for event in STACKS[stack](run.effects()):
            if run.past_answer:
                events.append(event)  # noqa: PERF401 - what came before the pause counts
    except Paused as pause:
        paused = pause.hitl_id
    await exchange.close()
    return Part(events, paused, exchange, run)


class Desk:
    """A shell: plays the flow on any stack, pauses it, resumes it. One world, one store."""

    def __init__(self, store: PauseStore) -> None:
        self.store = store
        self.tools = ScriptedTools({"book": "booked"}, writes=("book",))
        self.world = World(speaks, tools=self.tools)
        self.questions = 0

    async def begin(self, stack: str) -> Part:
        """Serve a new exchange."""
        tape = Tape()
        exchange = self.world.exchange(tape, live=self.live(tape))
        return await played(stack, exchange, TapeSession(exchange, stack))

    async def go_on(self, stack: str, hitl_id: str) -> Part:
        """Serve the rest of a paused exchange."""
        pause = await self.paused(hitl_id)
        assert pause.answer is not None
        tape, answer = resume(pause, pause.answer)
        exchange = self.world.exchange(tape, live=self.live(tape), after=tape.last_stamp)
        return await played(stack, exchange, TapeSession(exchange, stack, "resume", answer=answer))

    @asynccontextmanager
    async def exchange(self, tape: Tape | None = None) -> AsyncIterator[Opened]:
        """Open an exchange with a human who may take days, and a live run."""
        tape = tape or Tape()
        human = self.human(tape)
        exchange = self.world.exchange(tape, live=self.world.live(human=human))
        try:
            yield Opened(human, TapeSession(exchange, "run").effects())
        finally:
            await exchange.close()

    @asynccontextmanager
    async def resumed(
        self, hitl_id: str, answer: HumanAnswer, world: World | None = None
    ) -> AsyncIterator[TapeSession]:
        """Open the exchange of a pause with its answer, and a run that resumes it."""
        world = world or self.world
        tape, entry = resume(await self.paused(hitl_id), answer)
        exchange = world.exchange(tape, after=tape.last_stamp)
        try:
            yield TapeSession(exchange, "run", "resume", answer=entry)
        finally:
            await exchange.close()

    async def paused(self, hitl_id: str) -> Pause:
        """Read a pause, which there must be."""
        pause = await self.store.get(hitl_id)
        assert pause is not None
        return pause

    def live(self, tape: Tape) -> Effects:
        """Bundle the world's ports for one exchange, with a human who may take days."""
        return self.world.live(human=self.human(tape))

    def human(self, tape: Tape) -> PausingHuman:
        """Make the human port of an exchange."""
        origin = PauseOrigin("e-1", "book", "any", REQUEST)
        return PausingHuman(self.store, tape, origin, wall=self.wall, new_id=self._id)

    def wall(self) -> float:
        """Return the wall clock's time."""
        return self.world.clock.time()

    def _id(self) -> str:
        self.questions += 1
        return f"hitl-{self.questions}"
