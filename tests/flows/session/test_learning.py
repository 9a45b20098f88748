"""A conversation is learnt from: each message once, on either stack, and whatever breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from contract.errors import Fault
from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.model import Chunk
from contract.records import RequestRecord
from contract.stores import MemoryEntry
from effects.memory import InMemoryMemory
from effects.model import Fail, Wait
from effects.tape import Tape
from router.stack import StackName
from tests.support.faulty_stacks import Act, crash
from tests.support.flow_runs import DIRECTIONS, FOREVER, STACKS, Played, begin, same_on_both
from tests.support.router_world import House as Router
from tests.support.session_turns import House, Saying
from tests.support.takeovers import BreakingTurn, each_act, each_side, each_stack

pytestmark = pytest.mark.virtual

OPTIONS = SessionOptions(extract_from=2)
SAID = re.compile(r"^(?:user|assistant): .*$", re.MULTILINE)
KNOWN = (
    MemoryEntry(memory_id="k-1", user_id="u", text="has a cat", session_id="old", kind="relation"),
    MemoryEntry(memory_id="k-2", user_id="u", text="has a dog", session_id="old"),
    MemoryEntry(memory_id="k-3", user_id="v", text="has a cow", session_id="old"),
)


def operations(*made: dict[str, str]) -> tuple[Chunk, ...]:
    """Answer with operations."""
    return (Chunk(text=msgspec.json.encode({"operations": made}).decode()),)


def say(house: House, message: str, *learnt: object, session: str = "s") -> Saying:
    """Take a turn that is learnt from."""
    return Saying(
        body=SessionRequest(message=message, session_id=session, user_id="u"),
        house=house,
        options=OPTIONS,
        answers=((Chunk(text=f"heard {message}"),),),
        learnt=tuple(learnt),  # type: ignore[arg-type] # steps
    )


def read(played: Played) -> list[str]:
    """Return the messages that were read for memories in a turn."""
    prompts = [call.messages[-1].content for call in played.asked if call.json_object]
    return [line for prompt in prompts for line in SAID.findall(str(prompt))]


def learnt(house: House) -> list[tuple[str, str | None, str | None, tuple[str, ...]]]:
    """Return what is remembered."""
    return [(one.text, one.kind, one.session_id, one.changed_in) for one in house.memory.entries]


@pytest.mark.parametrize("directions", [DIRECTIONS, DIRECTIONS[::-1]], ids=["legacy", "graph"])
async def test_each_message_is_read_once(directions: Sequence[tuple[str, str]]) -> None:
    """Though the stacks take turns; what a failed call has not read, the next one does."""
    house, lines = House(), list[list[str]]()
    nothing = operations()
    fails = Fail(Fault("model_error"))
    for number, steps in enumerate((nothing, (fails,), nothing, nothing), 1):
        first, second = directions[number % 2]
        lines.append(read(await same_on_both(say(house, f"{number}", *steps), first, second)))
    assert lines == [
        ["user: 1"],
        ["assistant: heard 1", "user: 2"],
        ["assistant: heard 1", "user: 2", "assistant: heard 2", "user: 3"],
        ["assistant: heard 3", "user: 4"],
    ]


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_an_answer_adds_changes_and_drops(first: str, second: str) -> None:
    """Of the user's memories that it was shown; the tape is played without a change."""
    house = House(memory=InMemoryMemory(KNOWN, lambda: 7.0))
    answer = operations(
        {"op": "update", "id": "m1", "text": "has a cat called Tom", "type": "identity"},
        {"op": "delete", "id": "m2"},
        {"op": "delete", "id": "k-3"},
        {"op": "add", "text": "has an owl", "type": "plan"},
    )
    played = await same_on_both(
        say(house, "My cat is Tom. My dog is gone.", *answer), first, second
    )
    (prompt,) = [str(call.messages[-1].content) for call in played.asked if call.json_object]
    assert "cow" not in prompt
    assert learnt(house) == [
        ("has a cow", None, "old", ()),
        ("has a cat called Tom", "identity", "old", ("s",)),
        ("has an owl", "plan", "s", ()),
    ]
    assert [one.at for one in house.memory.entries] == [None, 7, 7]
    again = operations({"op": "update", "id": "m1", "text": "has a cat called Tom, aged 3"})
    await same_on_both(say(house, "cat called Tom", *again, session="t"), second, first)
    assert learnt(house)[-1] == ("has a cat called Tom, aged 3", "identity", "old", ("s", "t"))


@pytest.mark.parametrize("stack", ["legacy", "graph"])
@pytest.mark.parametrize(("slow", "fast"), [(9.0, 0.0), (3.0, 5.0)], ids=["late", "early"])
async def test_turns_that_learn_at_once_learn_each_message_once(
    stack: str, slow: float, fast: float
) -> None:
    """Whichever is done first; the other one reads what is left, or leaves it alone."""
    house = House()
    turns = (
        say(house, "one", Wait(slow), *operations({"op": "add", "text": "first"})),
        say(house, "two", Wait(fast), *operations({"op": "add", "text": "second"})),
    )
    runs, exchanges = [], []
    for turn in turns:
        exchanges.append(turn.world().exchange(Tape()))
        runs.append(begin(STACKS[stack], turn, exchanges[-1]))
        while not runs[-1].complete:
            await runs[-1].changed.wait()
    for run, exchange in zip(runs, exchanges, strict=True):
        assert await run.wait_stopped(FOREVER)
        assert run.outcome is not None
        assert run.outcome.kind == "completed"
        await exchange.close()
    # The late one finds its message read by the other, whose facts hold for both.
    texts = [text for text, *_ in learnt(house)]
    assert texts == (["second"] if slow > fast else ["first", "second"])


def changing_turn() -> Saying:
    """Build a turn that changes much of what is remembered."""
    answer = operations(
        {"op": "update", "id": "m1", "text": "has a cat called Tom"},
        {"op": "delete", "id": "m2"},
        {"op": "add", "text": "has an owl"},
    )
    return say(
        House(memory=InMemoryMemory(KNOWN, lambda: 7.0)), "My cat is here. My dog is not.", *answer
    )


TURN = BreakingTurn(changing_turn)


def remembered(made: Router) -> list[str]:
    """Return the texts that are remembered."""
    assert isinstance(made.case, Saying)
    return [entry.text for entry in made.case.house.memory.entries]


AFTER = ["has a cow", "has a cat called Tom", "has an owl"]


@each_stack
@each_act
async def test_a_stack_that_breaks_after_any_frame_learns_no_less(
    assigned: StackName, act: Act
) -> None:
    """The other one ends the stream and learns, once; one that hangs after the end is let be."""
    quiet, undisturbed = await TURN.take(assigned)
    assert remembered(quiet) == AFTER
    frames = len(undisturbed.wire) + (act is crash)
    for made, served in await TURN.break_after_frames(assigned, act, frames):
        assert served.wire == undisturbed.wire
        assert made.world.made == quiet.world.made
        assert remembered(made) == AFTER


@pytest.mark.slow
@pytest.mark.untraced
@each_stack
@each_side
async def test_a_stack_that_breaks_at_any_call_learns_no_less(
    assigned: StackName, done: bool
) -> None:
    """Before a port call is made, and after it was answered."""
    quiet, _ = await TURN.take(assigned)
    for made, _ in await TURN.break_at_calls(assigned, done=done):
        assert made.world.made == quiet.world.made
        assert remembered(made) == AFTER


@each_stack
async def test_a_shadow_learns_nothing(assigned: StackName) -> None:
    """It follows the tape; both are equal."""
    made = await TURN.mirror(assigned)
    assert made.world.count("memory.write") == 1
    assert remembered(made) == AFTER


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_turn_captured_by_an_earlier_version_adds_facts(first: str, second: str) -> None:
    """Its record does not state the option: the whole window is read, and nothing is changed."""
    house = House(memory=InMemoryMemory(KNOWN))
    await same_on_both(say(house, "1", *operations()), first, second)
    body = SessionRequest(message="2", session_id="s", user_id="u")
    stated = msgspec.Raw(b'{"extract_from":2,"unknown_session":"create"}')
    options = SESSION.request_of(
        RequestRecord(msgspec.Raw(msgspec.json.encode(body)), stated)
    ).options
    earlier = replace(say(house, "2", Chunk(text='["has an owl"]')), options=options)
    played = await same_on_both(earlier, first, second)
    assert read(played) == ["user: 1", "assistant: heard 1", "user: 2", "assistant: heard 2"]
    assert [label for label, *_ in played.calls][-4:] == [
        "model.stream",
        "conversations.find",
        "ids.new",
        "memory.write",
    ]
    (args,) = [args for label, _, args in played.calls if label == "memory.write"]
    assert b"revision" not in args
    assert [text for text, *_ in learnt(house)][-1] == "has an owl"
