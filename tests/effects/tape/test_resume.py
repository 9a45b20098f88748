"""Pausing and resuming: an exchange waits for a human, and goes on without doing a thing twice."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from contract.errors import EffectFailed, Fault, Paused, TapeMiss
from contract.human import AwaitAnswer, HumanAnswer
from contract.model import ToolCall, ToolSpec
from contract.ports import Effects
from effects.stores import MemoryPauses, SqlPauses
from effects.tape import Tape, canonical, read_paused, resume
from effects.testing import World
from effects.tools.fake import ScriptedTools
from tests.effects.tape.pausing import REQUEST, STACKS, Asked, Desk, Said, prompt, question

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from effects.stores import Pause, PauseStore

pytestmark = pytest.mark.virtual

YES = HumanAnswer("approve", by="ann")
NO = HumanAnswer("reject", by="bob")
STACK_NAMES = list(STACKS)


@pytest.fixture
def desk() -> Desk:
    """A shell over a store in memory."""
    desk = Desk(MemoryPauses())
    desk.store = MemoryPauses(desk.wall)
    return desk


@pytest.mark.parametrize("first", STACK_NAMES)
@pytest.mark.parametrize("second", STACK_NAMES)
async def test_a_paused_exchange_goes_on_on_either_stack(
    desk: Desk, first: str, second: str
) -> None:
    """Two questions, three parts, stacks changing in between: nothing is asked or done twice."""
    one = await desk.begin(first)
    assert one.events == [Said("0@500000"), Said("start@1000000"), Asked("hitl-1")]
    assert one.paused == "hitl-1"
    await desk.store.respond("hitl-1", YES)
    two = await desk.go_on(second, "hitl-1")
    assert [type(event) for event in two.events] == [Said, Said, Asked]
    assert two.paused == "hitl-2"
    await desk.store.respond("hitl-2", NO)
    three = await desk.go_on(first, "hitl-2")
    assert (three.events, three.paused) == ([Said("reject by id-1")], None)
    assert desk.world.count("model.stream") == 2
    assert desk.tools.called == ["book", "book"]
    assert desk.world.count("human.open") == 2


async def test_the_second_resume_replays_the_first_answer(desk: Desk) -> None:
    """The tape of the second pause holds the first answer; only the last one is new."""
    await desk.begin("looping")
    await desk.store.respond("hitl-1", YES)
    await desk.go_on("looping", "hitl-1")
    await desk.store.respond("hitl-2", NO)
    part = await desk.go_on("recursive", "hitl-2")
    answers = [
        play for play in part.run.plays if play.operation.label == "human.answer" and play.entry
    ]
    assert [play.entry and play.entry.items[0] for play in answers] == [YES, NO]
    assert {play.how for play in part.run.plays[:-1]} == {"exact"}
    assert part.run.plays[-1].how == "live"


async def test_the_question_and_its_tape_are_stored_before_it_is_sent(desk: Desk) -> None:
    """An answer as soon as the frame arrives finds the pause, and it can be resumed."""
    async with desk.exchange() as it:
        await it.effects.ids.new("reply")
        hitl_id = await it.effects.human.open("ask", question(0))
        pause = await desk.paused(hitl_id)
        assert (pause.exchange, pause.flow, pause.session_id) == ("e-1", "book", "s-1")
        assert (pause.question, pause.state) == (question(0), "open")
        assert (pause.answer_site, pause.answer_key) == ("ask", '{"hitl_id":"hitl-1"}')
        assert read_paused(pause.tape).request == REQUEST
        stored, answer = resume(pause, YES)
        assert [(entry.operation.label, entry.end) for entry in stored.entries] == [
            ("ids.new", "complete"),
            ("human.open", "complete"),
            ("human.answer", "complete"),
        ]
        assert answer.args == canonical(AwaitAnswer(hitl_id))


async def test_the_answer_is_looked_for_at_the_site_where_the_flow_waits(desk: Desk) -> None:
    """A flow may read the answer elsewhere than it asks; the stored tape says where."""
    async with desk.exchange() as it:
        hitl_id = await it.effects.human.open("ask", question(0))
        with pytest.raises(Paused):
            await it.effects.human.answer("elsewhere", hitl_id)
    async with desk.resumed(hitl_id, YES) as run:
        human = run.effects().human
        assert await human.open("ask", question(0)) == hitl_id
        assert await human.answer("elsewhere", hitl_id) == YES


async def test_a_second_question_is_refused_while_one_is_open(desk: Desk) -> None:
    """Of several calls in a round the first question pauses; the second is a tool error."""
    async with desk.exchange() as it:
        first, second = await asyncio.gather(
            it.effects.human.open("ask", question(0)),
            it.effects.human.open("ask", question(1)),
            return_exceptions=True,
        )
        assert first == "hitl-1"
        assert isinstance(second, EffectFailed)
        assert second.fault.code == "second_question"
        with pytest.raises(Paused):
            await it.effects.human.answer("ask", "hitl-1")
    assert len(await desk.store.pending()) == 1


async def test_an_answer_that_comes_while_the_flow_runs_is_taken_at_once(desk: Desk) -> None:
    """No pause then; and no other run can continue with the same answer."""
    async with desk.exchange() as it:
        hitl_id = await it.effects.human.open("ask", question(0))
        await desk.store.respond(hitl_id, YES)
        assert await it.effects.human.answer("ask", hitl_id) == YES
        assert await desk.store.claim(hitl_id, "late", 60.0) == "finished"
        assert await it.effects.human.open("ask", question(1)) == "hitl-2"


async def test_an_answer_another_run_continues_with_pauses(desk: Desk) -> None:
    """Of a flow that still runs and a client that continues, one goes on."""
    async with desk.exchange() as it:
        hitl_id = await it.effects.human.open("ask", question(0))
        await desk.store.respond(hitl_id, YES)
        assert await desk.store.claim(hitl_id, "another", 60.0) == "claimed"
        with pytest.raises(Paused):
            await it.effects.human.answer("ask", hitl_id)


async def test_another_prompt_after_a_deploy_does_not_ask_the_model_again(desk: Desk) -> None:
    """A miss before the answer is a mismatch, whatever is nearest; nothing is performed."""
    await desk.begin("looping")
    world = World()
    async with desk.resumed("hitl-1", YES, world) as run:
        stream = run.effects().model.stream("reply", prompt("0 changed"))
        with pytest.raises(TapeMiss) as miss:
            await anext(stream)
        assert miss.value.code == "resume_mismatch"
        assert miss.value.nearest is not None
        assert "0 start" in miss.value.nearest
        assert not run.past_answer
        assert world.made == []


async def test_the_time_of_an_exchange_goes_on_after_its_pause(desk: Desk) -> None:
    """A day between question and answer is none on the tape, and no stamp lies before it."""
    one = await desk.begin("looping")
    ended = one.exchange.tape.last_stamp
    await asyncio.sleep(80_000.0)
    await desk.store.respond("hitl-1", YES)
    two = await desk.go_on("recursive", "hitl-1")
    stamps = [entry.at for entry in two.exchange.tape.entries]
    assert stamps == sorted(stamps)
    question_at = two.exchange.tape.entries[-1].at
    assert 1_000_000 <= question_at - ended <= 1_000_002  # two words, half a second each


async def test_a_write_under_way_at_the_pause_is_kept_once_it_has_ended(desk: Desk) -> None:
    """The shell stores the tape again when the exchange has ended."""
    async with desk.exchange() as it:
        call = ToolCall("call_0_0", "book", "{}")
        hitl_id = await it.effects.human.open("ask", question(0))
        booking = asyncio.create_task(it.effects.tools.run("tool", call))
        with pytest.raises(Paused):
            await it.effects.human.answer("ask", hitl_id)
    await it.human.store_tape()
    async with desk.resumed(hitl_id, YES) as run:
        assert await run.effects().tools.run("tool", call) == await booking
        assert desk.tools.called == ["book"]


async def test_a_tape_over_its_bound_cannot_be_paused(desk: Desk) -> None:
    """Its items are gone: better no question than one that cannot be resumed."""
    async with desk.exchange(Tape(limit=10)) as it:
        with pytest.raises(EffectFailed, match="human_unavailable"):
            await it.effects.human.open("ask", question(0))
    assert await desk.store.pending() == ()


async def test_an_id_that_is_taken_is_an_error_of_the_store(desk: Desk) -> None:
    """Two exchanges never share a pause; the question may be tried again."""
    await desk.begin("looping")
    desk.questions = 0
    async with desk.exchange() as it:
        with pytest.raises(EffectFailed, match="store_failed"):
            await it.effects.human.open("ask", question(0))
        assert await it.effects.human.open("ask", question(1)) == "hitl-2"


class FailingPauses(MemoryPauses):
    """A store that is not there the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 1

    async def open(self, pause: Pause) -> bool:
        """Fail once."""
        if self.failures:
            self.failures -= 1
            raise EffectFailed(Fault("store_unavailable", retryable=True))
        return await super().open(pause)


async def test_a_question_that_could_not_be_stored_was_not_opened() -> None:
    """The flow gets the error, and the next question is not a second one."""
    desk = Desk(FailingPauses())
    async with desk.exchange() as it:
        with pytest.raises(EffectFailed, match="store_unavailable"):
            await it.effects.human.open("ask", question(0))
        assert await it.effects.human.open("ask", question(0)) == "hitl-2"


@pytest.mark.parametrize(
    ("foreign", "data"),
    [
        (b"", {"reason": "tape"}),
        (b"[]", {"reason": "tape"}),
        (b'{"v":2}', {"reason": "tape"}),
        (b'{"v":"2"}', {"reason": "tape"}),
        (b'{"v":4,"request":{"body":1,"options":2},"entries":[]}', {"version": 4, "known": 3}),
        (b'{"v":0}', {"version": 0, "known": 3}),
    ],
)
async def test_a_foreign_tape_is_refused(
    desk: Desk, foreign: bytes, data: dict[str, object]
) -> None:
    """What another version stored is not guessed at."""
    await desk.begin("looping")
    pause = await desk.paused("hitl-1")
    for call in (lambda one: resume(one, YES), lambda one: read_paused(one.tape)):
        with pytest.raises(EffectFailed) as failed:
            call(msgspec.structs.replace(pause, tape=foreign))
        assert (failed.value.fault.code, failed.value.fault.data) == ("pause_outdated", data)


async def test_a_tape_with_an_unknown_operation_is_refused(desk: Desk) -> None:
    """An operation of another version is none to pass over."""
    await desk.begin("looping")
    pause = await desk.paused("hitl-1")
    foreign = pause.tape.replace(b'"op":"run"', b'"op":"jog"')
    with pytest.raises(EffectFailed) as failed:
        resume(msgspec.structs.replace(pause, tape=foreign), YES)
    assert failed.value.fault == Fault("pause_outdated", data={"reason": "entries"})


async def test_a_tape_from_before_there_were_numbers_is_resumed(desk: Desk) -> None:
    """Pauses that waited while the code was changed go on."""
    await desk.begin("looping")
    await desk.store.respond("hitl-1", YES)
    pause = await desk.paused("hitl-1")
    old = msgspec.json.decode(pause.tape)
    assert old.pop("v") == 2
    assert await desk.store.replace_tape("hitl-1", msgspec.json.encode(old))
    assert (await desk.go_on("recursive", "hitl-1")).paused == "hitl-2"
    assert desk.tools.called == ["book", "book"]


@asynccontextmanager
async def opened(path: Path, desk: Desk) -> AsyncIterator[PauseStore]:
    """Open the file of pauses for a while."""
    async with SqlPauses.open_store(path, desk.wall) as store:
        desk.store = store
        yield store


async def test_a_pause_survives_a_restart(desk: Desk, tmp_path: Path) -> None:
    """Each part runs over a store opened anew: question, answer and tape are in the file."""
    async with opened(tmp_path / "pauses.db", desk):
        assert (await desk.begin("recursive")).paused == "hitl-1"
    async with opened(tmp_path / "pauses.db", desk) as store:
        assert await store.respond("hitl-1", YES) == "accepted"
        assert await store.respond("hitl-1", YES) == "same"
        assert await store.respond("hitl-1", NO) == "conflict"
    async with opened(tmp_path / "pauses.db", desk) as store:
        assert (await desk.go_on("looping", "hitl-1")).paused == "hitl-2"
        await store.respond("hitl-2", NO)
    async with opened(tmp_path / "pauses.db", desk):
        last = await desk.go_on("recursive", "hitl-2")
    assert last.events == [Said("reject by id-1")]
    assert desk.world.count("model.stream") == 2
    assert desk.tools.called == ["book", "book"]


class Offering(ScriptedTools):
    """Tools of a service that writes its schemas as it likes."""

    def __init__(self, spec: ToolSpec) -> None:
        super().__init__({})
        self._spec = spec

    async def list(self, _site: str) -> tuple[ToolSpec, ...]:
        """Offer the one tool."""
        return (self._spec,)


RAW = {
    "newline": b'{\n"type": "object"\r\n}',
    "half a pair": b'{"title": "\\ud83d"}',
    "torn": b'{"type":',
    "no UTF-8": b'{"title": "\xff"}',
    "deep": b"[" * 2_000 + b"]" * 2_000,
}


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "its own"])
@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
async def test_json_as_it_came_costs_no_pause(desk: Desk, raw: bytes, *, listed: bool) -> None:
    """A tool's schema, of a service or of the stack itself; its call is found on the tape."""
    spec = ToolSpec("book", "Books.", msgspec.Raw(raw))

    async def ask(effects: Effects) -> HumanAnswer:
        tools = await effects.tools.list("offer") if listed else (spec,)
        call = msgspec.structs.replace(prompt("hello"), tools=tools)
        async for _ in effects.model.stream("reply", call):
            pass
        hitl_id = await effects.human.open("ask", question(0))
        return await effects.human.answer("ask", hitl_id)

    desk.world.tools = Offering(spec)
    async with desk.exchange() as it:
        with pytest.raises(Paused):
            await ask(it.effects)
    stored = (await desk.paused("hitl-1")).tape
    assert b"\n" not in stored
    async with desk.resumed("hitl-1", YES) as run:
        assert await ask(run.effects()) == YES
        assert {play.how for play in run.plays} == {"exact"}
    assert desk.world.count("model.stream") == 1
