"""Any history of recording, tailing, replaying, fencing and cutting keeps every reader honest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from contract.errors import EffectFailed, Fault, Fenced, TapeCut
from contract.model import Chunk, ModelCall
from effects.model import ScriptedModel
from effects.tape import Tape, TapeSession
from effects.testing import VirtualLoop, World
from tests.support.tape_calls import asking, turns

if TYPE_CHECKING:
    from effects.tape import Policy

Result = TypeVar("Result")

ENOUGH_TURNS = 80
"""More turns of the loop than the longest stream here has items."""


FAULT = Fault("model_unavailable", retryable=True)


class HandledModel(ScriptedModel):
    """A model whose streams are moved by hand, one queue a call; None ends one well."""

    def __init__(self) -> None:
        super().__init__([])
        self.streams: list[asyncio.Queue[Chunk | Fault | None]] = []

    async def stream(self, *_: str | ModelCall) -> AsyncIterator[Chunk]:
        """Yield what is put into the queue of this call."""
        queue: asyncio.Queue[Chunk | Fault | None] = asyncio.Queue()
        self.streams.append(queue)
        while (item := await queue.get()) is not None:
            if isinstance(item, Fault):
                raise EffectFailed(item)
            yield item


@dataclass(eq=False)
class Asked:
    """A call: its text, what was said in answer and when, and how it ended."""

    text: str
    said: list[tuple[str, int]] = field(default_factory=list)
    end: str = "open"


@dataclass(eq=False)
class Reader:
    """A run that reads one call, what it got so far, and how its reading ended."""

    run: TapeSession
    asked: Asked
    got: list[tuple[str, int]] = field(default_factory=list)
    end: str = "open"
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read, in a task of its own."""
        self.task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self.run.effects().model.stream("reply", asking(self.asked.text)):
                self.got.append((chunk.text, chunk.at))
        except Fenced:
            self.end = "fenced"
        except TapeCut:
            self.end = "cut"
        except EffectFailed:
            self.end = "error"
        else:
            self.end = "complete"


class TapeMachine(RuleBasedStateMachine):
    """One exchange, its calls and their readers."""

    asked: Bundle[Asked] = Bundle("asked")
    readers: Bundle[Reader] = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.model = HandledModel()
        self.world = World(self.model)
        self.calls: list[Asked] = []
        self.all: list[Reader] = []
        self.left = False
        self.exchange = self.do(self.world.exchange)

    def teardown(self) -> None:
        """End the exchange; no reader may be left waiting."""
        self.runner.run(self.exchange.close())
        self.do(lambda: None)
        assert all(reader.end != "open" for reader in self.all)
        self.runner.close()

    def do(self, what: Callable[[], Result], seconds: float = 0.0) -> Result:
        """Do something on the loop, let so much time pass and everything ready happen."""

        async def doing() -> Result:
            result = what()
            await asyncio.sleep(seconds)
            await turns(ENOUGH_TURNS)
            return result

        return self.runner.run(doing())

    def _read(self, asked: Asked, policy: Policy, exchange_of: Tape | None = None) -> Reader:
        def reading() -> Reader:
            exchange = self.world.exchange(exchange_of) if exchange_of else self.exchange
            reader = Reader(self.world.run(exchange, policy, name=policy), asked)
            reader.start()
            return reader

        reader = self.do(reading)
        self.all.append(reader)
        return reader

    @rule(target=asked)
    @precondition(lambda self: not self.left)
    def record(self) -> Asked:
        """A live run asks something new."""
        asked = Asked(f"question {len(self.calls)}")
        self.calls.append(asked)
        self._read(asked, "live")
        assert len(self.model.streams) == len(self.calls)
        return asked

    @rule(asked=asked, text=st.text(max_size=3), seconds=st.floats(0, 2))
    def say(self, asked: Asked, text: str, seconds: float) -> None:
        """The model says something, after a while."""
        self.do(lambda: None, seconds)
        if asked.end == "open":
            stamp = self.exchange.stamp()
            queue = self.model.streams[self.calls.index(asked)]
            self.do(lambda: queue.put_nowait(Chunk(text=text)))
            asked.said.append((text, stamp))

    @rule(asked=asked, well=st.booleans())
    def end(self, asked: Asked, *, well: bool) -> None:
        """The model ends its answer, or fails."""
        if asked.end == "open":
            queue = self.model.streams[self.calls.index(asked)]
            self.do(lambda: queue.put_nowait(None if well else FAULT))
            asked.end = "complete" if well else "error"

    @rule(target=readers, asked=asked, policy=st.sampled_from(["nearest", "live", "fail"]))
    def tail(self, asked: Asked, policy: Policy) -> Reader:
        """Another run reads a call, finished or not."""
        return self._read(asked, policy)

    @rule(asked=asked)
    def replay(self, asked: Asked) -> None:
        """The tape as it is now is written down, loaded and played: open calls are cut."""
        tape = Tape.load(self.exchange.tape.record())
        reader = self._read(asked, "fail", tape)
        assert reader.got == asked.said
        assert reader.end == ("cut" if asked.end == "open" else asked.end)
        self.all.remove(reader)

    @rule(reader=readers)
    def fence(self, reader: Reader) -> None:
        """A run is replaced; it gets nothing from here on."""
        had = len(reader.got)
        self.do(reader.run.fence)
        if reader.end == "open":
            reader.asked = Asked(reader.asked.text, reader.got[:had], "fenced")

    @rule()
    @precondition(lambda self: bool(self.calls) and not self.left)
    def cut(self) -> None:
        """The client leaves."""
        self.runner.run(self.exchange.cancel_reads())
        self.left = True
        for asked in self.calls:
            if asked.end == "open":
                asked.end = "cut"
        self.do(lambda: None)

    @invariant()
    def every_reader_has_what_was_said(self) -> None:
        """Texts and stamps, all of them, in order; and the end is the recorded one."""
        for reader in self.all:
            assert reader.got == reader.asked.said
            fenced = reader.asked.end == "fenced"
            assert reader.end in ({"open", "fenced"} if fenced else {reader.asked.end})

    @invariant()
    def nothing_was_asked_twice(self) -> None:
        """One call of the model for each question, however many read it."""
        assert len(self.model.streams) == len(self.calls)


TestTape = pytest.mark.untraced(pytest.mark.slow(TapeMachine.TestCase))
TestTape.settings = settings(stateful_step_count=25)
