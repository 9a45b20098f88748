"""Pausing and resuming: the stored tape is the pause, and either stack runs again."""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest

from cutover import EffectFailed, Exchange, Run, StackFailed, effect
from cutover.errors import Failed, Fenced, Pause, Paused, ResumeMismatch, WriteDiffers
from cutover.records import EntryRecord, TapeRecord, decode, encode
from cutover.tape import (
    HUMAN_ANSWER,
    OUTCOME_UNKNOWN,
    Call,
    Entry,
    entry_record,
    load,
    moment,
    tape_record,
)
from tests.support.tapes import World, ended, play, start, turn, within

answers: dict[str, str] = {}


@effect(HUMAN_ANSWER)
async def human_answer(question: str) -> str:
    """Return what was answered; raises `Paused` before."""
    if question not in answers:
        raise Paused(question)
    return answers[question]


@pytest.fixture(autouse=True)
def _unanswered() -> None:
    answers.clear()


@dataclass
class Notes:
    """A journal of writes that remembers, and can fail or hang."""

    begun: list[str] = field(default_factory=list)
    finished: list[EntryRecord] = field(default_factory=list)
    begin_error: Exception | None = None
    finish_error: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def begin(self, call: Call) -> None:
        """Note that a write begins."""
        await self.gate.wait()
        if self.begin_error is not None:
            raise self.begin_error
        self.begun.append(call.canonical.decode())

    async def finish(self, entry: Entry) -> None:
        """Note how it ended."""
        await asyncio.sleep(0)
        if self.finish_error is not None:
            raise self.finish_error
        self.finished.append(entry_record(entry))


async def _paused(world: World, *, also: bool = False) -> TapeRecord:
    """Return the stored tape of an exchange that read, wrote and then asked."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        await within(run, lambda: world.read("a"))
        await within(run, lambda: world.write("b"))
        world.hold("open")
        branch = start(run, lambda: world.read("open")) if also else None
        await turn()
        with pytest.raises(Paused):
            await within(run, lambda: human_answer("q"))
        await exchange.pause()
        assert branch is None or isinstance(await ended(branch), Fenced)
        world.gates.clear()
        assert run.ended == Pause("q")
        return decode(encode(tape_record(exchange)), TapeRecord)


def _resumed(tape: TapeRecord, journal: Notes | None = None) -> Exchange:
    exchange = Exchange(journal=journal)
    load(exchange, tape)
    exchange.answered = False
    return exchange


async def test_a_resumed_run_finds_what_was_done_and_goes_on(world: World) -> None:
    """Nothing made before the pause is made again, by either stack."""
    tape = await _paused(world)
    answers["q"] = "yes"
    async with _resumed(tape) as exchange:
        run = Run(exchange, "graph")
        assert await within(run, lambda: world.read("a")) == "a #1"
        assert await within(run, lambda: world.write("b")) == "b #1"
        assert await within(run, lambda: human_answer("q")) == "yes"
        assert await within(run, lambda: world.write("c")) == "c #1"
    assert world.done == ["a", "b", "c"]


async def test_a_question_leaves_no_entry() -> None:
    """`human.answer` is asked again on resuming."""
    tape = await _paused(World())
    assert [entry.name for entry in tape.entries] == ["world.read", "world.write"]
    assert tape.question == "q"


async def test_a_blocking_question_pauses_as_well() -> None:
    """A tool in a thread may ask a human."""

    @effect(HUMAN_ANSWER)
    def ask(question: str) -> str:
        raise Paused(question)

    for inline in (True, False):
        async with Exchange() as exchange:
            run = Run(exchange, "legacy")
            with pytest.raises(Paused), run.current():
                ask("q") if inline else await asyncio.to_thread(ask, "q")
            assert run.ended == Pause("q")
            assert (exchange.entries, exchange.question) == ([], "q")


async def test_a_miss_before_the_answer_is_a_mismatch(world: World) -> None:
    """The stack has changed since: what it asks now was not asked by the run that paused."""
    async with _resumed(await _paused(world)) as exchange:
        run = Run(exchange, "legacy")
        with pytest.raises(ResumeMismatch):
            await within(run, lambda: world.read("new"))
        assert isinstance(run.ended, Failed)
        assert run.ended.code == "resume_mismatch"
    assert world.done == ["a", "b"]


async def test_a_read_that_the_pause_dropped_is_no_mismatch(world: World) -> None:
    """A parallel branch was cut off by the question: its read is performed again, once."""
    tape = await _paused(world, also=True)
    answers["q"] = "yes"
    async with _resumed(tape) as exchange:
        assert [entry.call.name for entry in exchange.entries] == ["world.read", "world.write"]
        run = Run(exchange, "legacy")
        assert await within(run, lambda: world.read("open")) == "open #1"
        with pytest.raises(ResumeMismatch):
            await within(run, lambda: world.read("open"))


async def test_a_write_under_way_is_awaited_by_the_pause(world: World) -> None:
    """Its result is on the stored tape."""
    world.hold("w")
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        branch = start(run, lambda: world.write("w"))
        await turn()
        with pytest.raises(Paused):
            await within(run, lambda: human_answer("q"))
        pausing = asyncio.create_task(exchange.pause())
        await turn()
        assert not pausing.done()
        world.let()
        await pausing
        assert isinstance(await ended(branch), Fenced)
        assert [entry.end for entry in tape_record(exchange).entries] == ["done"]


async def test_another_reader_of_a_question_pauses_too() -> None:
    """The entry is withdrawn while a second run reads it, and neither is left waiting."""
    gate = asyncio.Event()

    @effect(HUMAN_ANSWER)
    async def ask(question: str) -> str:
        await gate.wait()
        raise Paused(question)

    async with Exchange() as exchange:
        runs = [Run(exchange, "legacy"), play(exchange)]
        tasks = [start(run, lambda: ask("q")) for run in runs]
        await turn()
        gate.set()
        assert [type(await ended(task)) for task in tasks] == [Paused, Paused]
        assert [run.ended for run in runs] == [Pause("q")] * 2
        assert exchange.entries == []


async def test_a_write_worded_otherwise_after_the_answer_is_not_made(world: World) -> None:
    """The run that paused has made it: the resumed one may not make another in its place."""
    tape = await _paused(world)
    answers["q"] = "yes"
    async with _resumed(tape) as exchange:
        run = Run(exchange, "graph")
        await within(run, lambda: human_answer("q"))
        with pytest.raises(WriteDiffers):
            await within(run, lambda: world.write("other"))


@pytest.mark.virtual
async def test_the_clock_goes_on_where_the_stored_tape_ends(world: World) -> None:
    """Stamps of a resumed tape rise: `moment()` does not jump back."""
    tape = TapeRecord((EntryRecord("world.read", "00", "{}", 9_000_000),))
    async with _resumed(tape) as exchange:
        exchange.answered = True
        run = Run(exchange, "legacy")
        await asyncio.sleep(1)
        await within(run, lambda: world.read("a"))
        with run.current():
            assert moment() == pytest.approx(10)
        assert exchange.entries[-1].at == pytest.approx(10e6)


# The journal.


async def test_a_write_is_noted_before_and_after_and_a_read_is_not() -> None:
    """What was begun and what came of it can be told after `kill -9`."""
    world, notes = World(), Notes()
    async with Exchange(journal=notes) as exchange:
        run = Run(exchange, "legacy")
        await within(run, lambda: world.read("r"))
        await within(run, lambda: world.write("w"))
        with pytest.raises(Exception, match="bad"):
            await within(run, lambda: world.write("bad"))
    assert notes.begun == ['{"key":"w"}', '{"key":"bad"}']
    assert [record.end for record in notes.finished] == ["done", "failed"]
    assert [item.data for item in notes.finished[0].items] == [b'"w #1"']


async def test_a_write_that_cannot_be_noted_is_not_made() -> None:
    """The claim is another process's by now: its readers get the journal's own error."""
    world, notes = World(), Notes(begin_error=StackFailed("claim_lost", "world"))
    async with Exchange(journal=notes) as exchange:
        run = Run(exchange, "legacy")
        in_thread = partial(asyncio.to_thread, _blocking_write, "w")
        for write in (partial(world.write, "w"), in_thread):
            with pytest.raises(StackFailed, match="claim_lost"):
                await within(run, write)
        assert exchange.entries == []
    assert world.begun == []


@effect("blocking.write", writes=True)
def _blocking_write(key: str) -> str:
    return f"{key} from a thread"


async def test_a_result_that_cannot_be_noted_is_served() -> None:
    """The write is done; a journal that fails must not leave its reader waiting."""
    world, notes = World(), Notes(finish_error=OSError("disk full"))
    async with Exchange(journal=notes) as exchange, asyncio.timeout(1):
        run = Run(exchange, "legacy")
        assert await within(run, lambda: world.write("w")) == "w #1"
        with run.current():
            assert await asyncio.to_thread(_blocking_write, "w") == "w from a thread"


async def test_a_client_that_leaves_while_a_write_is_noted_undoes_nothing() -> None:
    """The write has begun: it is performed, and the exchange waits for it."""
    world, notes = World(), Notes()
    notes.gate.clear()
    async with Exchange(journal=notes) as exchange:
        task = start(Run(exchange, "legacy"), lambda: world.write("w"))
        await turn()
        task.cancel()
        await ended(task)
        closing = asyncio.create_task(exchange.aclose())
        await turn()
        assert not closing.done()
        notes.gate.set()
        await closing
    assert (world.done, len(notes.finished)) == (["w"], 1)


async def test_a_blocking_write_is_noted_in_a_thread_and_refused_on_the_loops_own() -> None:
    """Nothing can be stored while the loop stands still, and unstored it might be made twice."""
    notes = Notes()
    async with Exchange(journal=notes) as exchange:
        with Run(exchange, "legacy").current():
            with pytest.raises(EffectFailed, match="to_thread"):
                _blocking_write("w")
            assert await asyncio.to_thread(_blocking_write, "w") == "w from a thread"
    assert (notes.begun, len(notes.finished)) == (['{"key":"w"}'], 1)


async def test_a_write_begun_and_never_ended_has_an_unknown_outcome(world: World) -> None:
    """After `kill -9` it is said, and never made again."""
    tape = await _paused(world)
    async with Exchange() as scratch:  # the call as the tape would know it
        await within(Run(scratch, "legacy"), lambda: World().write("c"))
        call = scratch.entries[0].call
    begun = EntryRecord(
        call.name, call.key.hex(), call.canonical.decode(), 0, writes=True, end="open"
    )
    answers["q"] = "yes"
    async with Exchange() as exchange:
        load(exchange, tape, [begun])
        exchange.answered = False
        run = Run(exchange, "legacy")
        await within(run, lambda: human_answer("q"))
        with pytest.raises(EffectFailed) as failed:
            await within(run, lambda: world.write("c"))
        assert failed.value.kind == OUTCOME_UNKNOWN
    assert world.done == ["a", "b"]
