"""Whose earlier answers a shadow is told: those that were served, or its own."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from contract import operations as ops
from contract.flows.session import SessionRequest
from contract.records import OwnHistory, RunRecord
from effects.model import Hang, ScriptedModel
from router.stack import StackName
from tests.support.router_world import House
from tests.support.session_conversations import (
    begun,
    free,
    hello,
    recorded,
    remembering,
    say,
    served_by,
    session_of,
    shadows,
    slow_to_begin,
    talk,
    talking,
    texts,
    turn,
    with_budget,
)
from tests.support.tool_replies import ASSIGNED

pytestmark = pytest.mark.virtual

SERVED = ["red", "red again", "red again again", "red again again again"]
OWN = [text.replace("red", "blue") for text in SERVED]


def questions(runs: list[RunRecord], house: House) -> list[bytes]:
    """Return what each run asked the model."""
    found = []
    for run in runs:
        (tape,) = (one.tape for one in house.runs if one.exchange == run.exchange and one.tape)
        (play,) = (play for play in run.plays if play.op == ops.MODEL_STREAM.name)
        found.append(bytes(play.args if play.args is not None else tape[play.entry or 0].args))
    return found


@pytest.mark.parametrize("mode", ["replay", "tail", "live"])
@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_shadow_is_told_what_was_served(
    assigned: StackName, mode: Literal["replay", "tail", "live"]
) -> None:
    """In all modes, turn after turn: it asks, byte for byte, what those who serve ask."""
    async with talking(free(assigned=assigned, mode=mode, history="served")) as house:
        await talk(house, 4)
        serving = [run for run in house.runs if run.role == "serving"]
        assert texts(serving) == SERVED
        assert questions(shadows(house), house) == questions(serving, house)
        for run in shadows(house):
            assert {play.how for play in run.plays if play.port == "conversations"} <= {
                "exact",
                "nearest" if mode == "live" else "exact",
            }
            assert run.history is None
        first = "blue" if mode == "live" else "red"
        assert texts(shadows(house)) == [first, *SERVED[1:]]


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_free_shadow_is_told_its_own_answers(assigned: StackName) -> None:
    """From the second turn on it goes its own way, and says how many of its own it was told."""
    async with talking(free(assigned=assigned)) as house:
        await talk(house, 4)
        assert texts(run for run in house.runs if run.role == "serving") == SERVED
        assert texts(shadows(house)) == OWN
        assert [run.history for run in shadows(house)] == [
            OwnHistory(own=told, other=told) for told in range(4)
        ]
        assert all(run.history is None for run in house.runs if run.role != "shadow")


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_world_notices_nothing(assigned: StackName) -> None:
    """What is asked of it, and what its stores hold, is as without shadows."""
    async with talking(free(assigned=assigned, shadow=0)) as quiet:
        await talk(quiet, 3)
    async with talking(free(assigned=assigned)) as house:
        await talk(house, 3)
        assert house.world.made == quiet.world.made
        contents = [turn.content for turn in house.world.conversations.turns]
        assert contents == [turn.content for turn in quiet.world.conversations.turns]
        assert not any("blue" in content for content in contents)


async def test_answers_that_are_the_same_are_no_other_history() -> None:
    """A shadow that says what was served is told its own, and asks the same."""
    async with talking(free(remembering("red"))) as house:
        await talk(house, 3)
        assert [run.history for run in shadows(house)] == [OwnHistory(own=n) for n in range(3)]


async def test_joined_in_the_middle_it_is_told_what_was_served_before() -> None:
    """A budget that is spent drops a turn; the next one's record says what it lacks."""
    async with talking(free(tokens=60)) as house:
        session = await talk(house, 3)
        assert house.states == {"compared(own_answers)": 2, "dropped(budget)": 1}
        house.settings = with_budget(house, 10_000)
        await say(house, session)
        assert shadows(house)[-1].history == OwnHistory(own=2, other=2, served=1)
        assert texts(shadows(house)) == [*OWN[:2], SERVED[3]]


async def test_each_stack_has_its_own_side() -> None:
    """Served by another stack from the third turn on, neither is told the other's own answers."""
    async with talking(free()) as house:
        session = await talk(house, 2)
        house.settings = served_by(house, "graph")
        await say(house, session)
        await say(house, session)
        legacy = [run for run in shadows(house) if run.stack == "legacy"]
        assert [run.history for run in legacy] == [
            OwnHistory(served=2),
            OwnHistory(own=1, served=2),
        ]
        house.settings = served_by(house, "legacy")
        await say(house, session)
        graph = [run for run in shadows(house) if run.stack == "graph"]
        assert graph[-1].history == OwnHistory(own=2, other=2, served=2)


async def test_turns_of_a_conversation_run_in_order_and_others_beside() -> None:
    """The second waits for the first one's answer; another conversation's does not."""
    asks = ScriptedModel(slow_to_begin)
    async with talking(free(asks)) as house:
        one = session_of(await house.client(hello()))
        for _ in range(2):
            await asyncio.sleep(0.1)  # the lock is let go of
            await house.client(turn(one))
        await house.client(SessionRequest(message="quick"))
        await asyncio.sleep(5.0)
        assert texts(shadows(house)) == ["quick"]
        assert house.router.shadows.waiting == 2
        await asyncio.sleep(20.0)
        assert texts(shadows(house)) == ["quick", *OWN[:3]]


async def test_a_router_that_stops_drops_what_waits_for_its_turn() -> None:
    """Every exchange is settled, and no model is asked any more."""
    asks = ScriptedModel([Hang()])
    async with talking(free(asks)) as house:
        session = session_of(await house.client(hello()))
        for _ in range(3):
            await asyncio.sleep(0.1)  # the lock is let go of
            assert (await house.client(turn(session))).status == 200
        await asyncio.sleep(1.0)
        await house.router.aclose(1.0)
        assert house.states == {"dropped(stopping)": 4}
        assert (len(asks.calls), house.router.shadows.waiting) == (1, 0)
        await asyncio.sleep(1.0)
        assert asks.open == 0


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_forgotten_session_has_no_side(assigned: StackName) -> None:
    """Nor has a shadow that still runs one to write on."""
    async with talking(free(assigned=assigned)) as house:
        session = await begun(house)
        replies = house.router.shadows.replies
        (chat,) = replies.chats
        assert chat.chat_id == session
        later = await house.client(turn(session))
        replies.forget(chat)
        await recorded(house, later)
        assert not replies.chats
        assert replies.size == 0
