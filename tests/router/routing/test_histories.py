"""Conversations that each stack stores itself: where they stay, when they move, what they lose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed, Fault
from contract.flow import Event
from contract.ports import Effects
from contract.qa_header import sign
from router.config.schema import Settings
from router.routing.histories import Histories
from router.stack import STACKS, StackName
from tests.support.faulty_stacks import after, crash
from tests.support.log_records import listening
from tests.support.router_world import QA_KEY, WALL, House, Rules, Served
from tests.support.tool_replies import CASE, FLOWS, named

pytestmark = pytest.mark.virtual

STORED_BY = st.sets(st.sampled_from(list(STACKS.values())))


@given(st.lists(STORED_BY, max_size=6), st.data())
def test_a_stack_knows_a_conversation_without_gaps(
    turns: list[set[StackName]], data: st.DataObject
) -> None:
    """In whatever order turns that overlap end: one that is stored before an earlier one is a gap.

    Nothing is known of a conversation that was not opened here.
    """
    histories = Histories()
    histories.open("chat", "c")
    begun = [histories.begin_turn("chat", "c", "legacy") for _ in turns]
    unknown = [histories.begin_turn("chat", "other", "legacy") for _ in turns]
    stored: dict[StackName, int] = dict.fromkeys(STACKS.values(), 0)
    ends = [(turn, stack) for turn, stacks in enumerate(turns, 1) for stack in sorted(stacks)]
    for number, stack in data.draw(st.permutations(ends)):
        begun[number - 1].store(stack)
        unknown[number - 1].store(stack)
        if stored[stack] == number - 1:
            stored[stack] = number
        for turn in begun:
            assert all(turn.known_to(one) == (stored[one] >= turn.number - 1) for one in stored)
    assert [turn.number for turn in begun] == list(range(1, len(turns) + 1))
    assert all(turn.number > 1 for turn in unknown)
    assert not any(turn.known_to(stack) for turn in unknown for stack in stored)


def test_the_conversations_remembered_are_bounded() -> None:
    """Of the one that was used least recently nothing is known any more; open turns go on."""
    histories = Histories(most=2)
    for conversation in "ab":
        histories.open("chat", conversation)
    turn = histories.begin_turn("chat", "b", "legacy")
    histories.begin_turn("chat", "a", "legacy").store("legacy")
    histories.open("chat", "c")
    assert len(histories) == 2
    turn.store("legacy")
    assert turn.known_to("legacy")
    assert histories.begin_turn("chat", "a", "legacy").known_to("legacy")
    assert not histories.begin_turn("chat", "b", "legacy").known_to("legacy")


def test_turns_are_numbered_from_a_first_one_that_was_seen() -> None:
    """Of a conversation that began elsewhere no number is known."""
    histories = Histories()
    histories.open("chat", "new")
    assert [histories.begin_turn("chat", "new", "legacy").known_number for _ in range(2)] == [1, 2]
    assert [histories.begin_turn("chat", "old", "legacy").known_number for _ in range(2)] == [0, 0]


def test_a_conversation_that_is_known_is_not_opened_anew() -> None:
    """Its pin was released or has expired: what stacks lack they still lack."""
    histories = Histories()
    histories.open("chat", "c")
    histories.begin_turn("chat", "c", "legacy").store("legacy")
    histories.open("chat", "c")
    turn = histories.begin_turn("chat", "c", "legacy")
    assert (turn.number, turn.known_to("legacy"), turn.known_to("graph")) == (2, True, False)


class Crashing:
    """A flow of a stack that crashes after so many frames while `at` says how many."""

    def __init__(self, stack: StackName) -> None:
        self.at: int | None = None
        self._stack = stack

    async def __call__(self, request: Any, effects: Effects) -> AsyncIterator[Event]:
        """Run the flow, and perhaps crash."""
        flow = FLOWS[self._stack]
        async for event in (flow if self.at is None else after(flow, self.at, crash))(
            request, effects
        ):
            yield event


def settings(percent: int = 0, shadow: int = 0, **flow: object) -> Settings:
    """Return the settings of a flow whose stacks store histories of their own."""
    shares = {"langgraph_percent": Decimal(percent), "shadow_percent": Decimal(shadow)}
    own = {"route_key": "session_id", "sticky": "conversation", "history": "own"}
    return Rules(flow={**shares, **own, **flow}).settings(CASE)


async def turn(house: House, chat: str, qa: str | None = None) -> Served:
    """Take one turn of a conversation, and wait for its shadow."""
    return await house.ask(named(f"m{len(house.runs)}", chat_id=chat), qa=qa)


async def served_by(house: House, chat: str, qa: str | None = None) -> str:
    """Take one turn, and return who served it."""
    return (await turn(house, chat, qa)).stream.context.served


def moved(house: House) -> tuple[int, int]:
    """Return how many conversations have moved, and how many of them lost their history."""
    counts = house.router.counts
    return counts.conversations_moved, counts.histories_lost


CHATS = [f"chat {number}" for number in range(12)]


async def test_no_change_of_percentage_moves_a_conversation() -> None:
    """Whether the flow was off, at 0 or at 100 when it began."""
    async with House(CASE) as made:
        expected: dict[str, str] = {}
        for name, new in (
            ("off", settings(enable_langgraph=False)),
            ("none", settings(0)),
            ("half", settings(50)),
            ("all", settings(100)),
            ("none again", settings(0)),
        ):
            made.settings = new
            for chat, stack in expected.items():
                assert await served_by(made, chat) == stack
            expected |= {
                f"{name} {chat}": await served_by(made, f"{name} {chat}") for chat in CHATS
            }
        assert moved(made) == (0, 0)
        stacks = [stack for chat, stack in expected.items() if chat.startswith("half")]
        assert set(stacks) == {"legacy", "graph"}


def move(exchange: str, to: StackName, reason: str, shadow: int) -> dict[str, str]:
    """Return what is logged of a move; what the shadow has brought is not lost."""
    history = "stored" if shadow else "lost"
    return {"exchange": exchange, "flow": "chat", "to": to, "reason": reason, "history": history}


@pytest.mark.parametrize("shadow", [0, 100])
async def test_the_switch_moves_conversations_and_counts_the_histories_lost(shadow: int) -> None:
    """At once, and for good; none is lost where the shadow has brought every turn."""
    async with House(CASE) as made:
        made.settings = settings(100, shadow)
        for chat in ("a", "b"):
            assert [await served_by(made, chat) for _ in range(2)] == ["graph"] * 2
        made.settings = settings(100, shadow, enable_langgraph=False)
        with listening() as lines:
            exchange = (await turn(made, "a")).exchange
        assert lines.fields("conversation moved") == move(exchange, "legacy", "disabled", shadow)
        assert await served_by(made, "a") == "legacy"
        assert await served_by(made, "new") == "legacy"
        made.settings = settings(100, shadow)
        assert await served_by(made, "a") == "legacy", "it has the last turns"
        assert await served_by(made, "b") == "graph", "it was idle meanwhile"
        assert moved(made) == (1, 0 if shadow else 1)


async def test_force_lists_and_the_header_move_a_conversation() -> None:
    """It goes on where it was forced to, and is pinned there where it begins so."""
    header = sign("graph", int(WALL) + 60, "a", QA_KEY)
    async with House(CASE) as made:
        made.settings = settings(0)
        assert await served_by(made, "a") == "legacy"
        assert await served_by(made, "a", header) == "graph"
        assert await served_by(made, "a") == "graph"
        made.settings = settings(0, force_graph=frozenset({"b"}), force_legacy=frozenset({"a"}))
        assert await served_by(made, "a") == "legacy"
        assert await served_by(made, "b") == "graph"
        made.settings = settings(0)
        assert await served_by(made, "b") == "graph"
        assert moved(made) == (2, 2)


async def test_a_fallback_before_the_first_frame_moves_the_conversation() -> None:
    """The fallback has the last turn; the stack that failed does not."""
    graph = Crashing("graph")
    async with House(CASE, graph=graph) as made:
        made.settings = settings(100)
        assert await served_by(made, "a") == "graph"
        graph.at = 0
        assert await served_by(made, "a") == "legacy"
        assert await served_by(made, "begins") == "legacy"
        graph.at = None
        assert await served_by(made, "a") == "legacy"
        assert await served_by(made, "begins") == "legacy"
        assert moved(made) == (1, 1)


@pytest.mark.parametrize("shadow", [0, 100])
async def test_a_release_moves_conversations_and_counts_the_histories_lost(shadow: int) -> None:
    """As any move; a conversation that stays where it is loses nothing."""
    async with House(CASE) as made:
        made.settings = settings(0, shadow)
        for chat in ("a", "b"):
            assert await served_by(made, chat) == "legacy"
        made.settings = settings(100, shadow, force_legacy=frozenset({"b"}))
        await made.router.assigner.pins.release("chat")
        with listening() as lines:
            exchange = (await turn(made, "a")).exchange
        assert lines.fields("conversation moved") == move(exchange, "graph", "percent", shadow)
        assert [await served_by(made, chat) for chat in ("a", "b")] == ["graph", "legacy"]
        assert moved(made) == (1, 0 if shadow else 1)


async def test_a_conversation_stays_while_the_store_of_pins_does_not_answer() -> None:
    """It goes on where its last turn was served."""
    async with House(CASE) as made:
        made.settings = settings(0)
        assert await served_by(made, "a") == "legacy"
        made.settings = settings(100)
        pins = made.router.assigner.pins
        await pins.release("chat")
        await pins.lookup.call(_unavailable)
        assert await served_by(made, "a") == "legacy"
        assert moved(made) == (0, 0)


async def test_a_pin_that_comes_too_late_moves_a_conversation_on_record() -> None:
    """Its turn stays; the next one follows the pin that the store has made for it."""
    async with House(CASE) as made:
        made.settings = settings(0)
        assert await served_by(made, "a") == "legacy"
        made.settings = settings(100)
        pins = made.router.assigner.pins
        await pins.release("chat")
        pins.move("chat", "a", "graph", "v", 60.0)
        assert await served_by(made, "a") == "graph"
        assert moved(made) == (1, 1)


async def _unavailable() -> None:
    raise EffectFailed(Fault("store_unavailable"))


async def test_conversations_assigned_to_a_stack_that_is_gone_do_not_move() -> None:
    """They begin where they are served."""
    async with House(CASE) as made:
        made.settings = settings(100)
        made.router.assigner.stacks = ("legacy",)
        assert [await served_by(made, "a") for _ in range(2)] == ["legacy"] * 2
        assert moved(made) == (0, 0)


@pytest.mark.parametrize("shadow", [0, 100])
async def test_a_takeover_is_attempted_where_the_fallback_knows_the_conversation(
    shadow: int,
) -> None:
    """On a first turn each stack does; later only one that the shadow has brought every turn."""
    graph = Crashing("graph")
    async with House(CASE, graph=graph) as made:
        made.settings = settings(100, shadow)
        graph.at = 3
        assert (await turn(made, "first")).comments
        graph.at = None
        await turn(made, "a")
        graph.at = 3
        with listening() as lines:
            later = await turn(made, "a")
        (failure,) = lines.failures
        if shadow:
            assert later.comments
            assert failure["then"] == "takeover by legacy"
            completed = lines.fields("takeover completed")
            assert (completed["exchange"], completed["lost_ms"]) == (later.exchange, "250")
            assert moved(made) == (1, 0)
        else:
            assert not later.comments
            assert failure["then"] == "failure frames, no takeover: legacy lacks earlier turns"
            assert moved(made) == (0, 0)
            assert made.runs[-1].outcome == "failed"


async def test_the_turns_of_a_conversation_are_on_record() -> None:
    """On the line of each served run, where stacks store conversations themselves."""
    async with House(CASE) as made:
        made.settings = settings(0, 100)
        for chat in ("a", "a", "b"):
            await state(made, chat)
        served = [run for run in made.runs if run.role == "serving"]
        assert [(run.own_histories, run.turn) for run in served] == [(True, n) for n in (1, 2, 1)]
        assert {run.turn for run in made.runs if run.role == "shadow"} == {0}


async def test_shadows_draw_whole_conversations_and_need_every_earlier_turn() -> None:
    """A turn that was not mirrored, or failed on one side, leaves the next ones out."""
    legacy, graph = Crashing("legacy"), Crashing("graph")
    async with House(CASE, legacy=legacy, graph=graph) as made:
        made.settings = settings(0, 50)
        drawn = {chat: [await state(made, chat) for _ in range(3)] for chat in CHATS}
        assert {tuple(found) for found in drawn.values()} == {
            ("compared(equal)",) * 3,
            ("not_sampled",) * 3,
        }
        made.settings = settings(0, 100)
        for chat, found in drawn.items():
            later = "compared(equal)" if "compared(equal)" in found else "dropped(no_history)"
            assert await state(made, chat) == later
        graph.at = 3
        assert await state(made, "a") == "compared(different)"
        graph.at = None
        assert await state(made, "a") == "dropped(no_history)"
        legacy.at = 3
        made.settings = settings(0, 100, fallback_to_graph=False)
        assert await state(made, "b") == "compared(different)"
        legacy.at = None
        assert await state(made, "b") == "dropped(no_history)"


async def state(house: House, chat: str) -> str:
    """Take one turn, and return what became of its shadow."""
    line = house.contexts.lines[(await turn(house, chat)).exchange]
    return f"{line.state}({line.reason})" if line.reason else line.state
