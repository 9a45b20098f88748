"""Stickiness: a conversation keeps its stack, and nothing waits long for a store of pins."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from contract.errors import EffectFailed, Fault
from contract.flows.chat import ChatRequest
from contract.qa_header import sign
from effects.stores import MemoryPins, Pin, PinCount
from router.config.schema import Settings
from router.routing.assignment import bucket
from router.routing.lookup import REST_SECONDS, WAIT_SECONDS
from router.routing.pins import FRESH_SECONDS, HeldStack, Pins
from router.stack import StackName
from tests.support.clocks import now
from tests.support.router_world import QA_KEY, WALL, House, Rules
from tests.support.tool_replies import CASE

pytestmark = pytest.mark.virtual

WEEK = 604_800.0
BEGUN, ON = HeldStack("graph", new=True), HeldStack("graph", new=False)
LEGACY = HeldStack("legacy", new=False)
CHATS = [f"chat {number}" for number in range(12)]


@dataclass
class Shelf:
    """A store that may be slow or out of reach, and says how often it was asked.

    `delay` is before it looks, `late` after.
    """

    delay: float = 0.0
    late: float = 0.0
    broken: Exception | None = None
    asked: int = 0
    pins: MemoryPins = field(default_factory=lambda: MemoryPins(now))

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Return the pin, late or never."""
        self.asked += 1
        await asyncio.sleep(self.delay)
        if self.broken is not None:
            raise self.broken
        held = await self.pins.hold(flow, conversation, pin, seconds)
        await asyncio.sleep(self.late)
        return held

    async def count(self) -> Mapping[str, PinCount]:
        """Count them, if the store is in reach."""
        if self.broken is not None:
            raise self.broken
        return await self.pins.count()

    async def release(self, flow: str, stack: StackName | None = None) -> PinCount:
        """Release some."""
        return await self.pins.release(flow, stack)

    async def released(self) -> Mapping[str, str]:
        """Return the marks, if the store is in reach."""
        if self.broken is not None:
            raise self.broken
        return await self.pins.released()

    async def move(self, flow: str, conversation: str, pin: Pin, seconds: float) -> None:
        """Replace the pin, if the store is in reach."""
        if self.broken is not None:
            raise self.broken
        await self.pins.move(flow, conversation, pin, seconds)

    async def aclose(self) -> None:
        """Nothing is open."""


def settings(percent: int = 50, **flow: object) -> Settings:
    """Return a sticky flow's settings."""
    shares = {"langgraph_percent": Decimal(percent), "route_key": "session_id"}
    return Rules(flow={**shares, "sticky": "conversation", **flow}).settings(CASE)


async def turn(house: House, chat: str | None, qa: str | None = None) -> tuple[str, str]:
    """Take one turn of a conversation; returns who was assigned, and why."""
    body = ChatRequest(message_id="m1", content="hi", chat_id=chat)
    served = await house.ask(body, qa=qa)
    found = served.stream.context.assignment
    assert house.runs[-1].reason == found.why
    return found.stack, found.why


async def test_a_conversation_stays_where_it_began() -> None:
    """Whatever the percentage becomes; what begins later goes by the new one."""
    async with House(CASE) as made:
        made.settings = settings(50)
        first = {chat: await turn(made, chat) for chat in CHATS}
        assert {why for _, why in first.values()} == {"percent"}
        assert {stack for stack, _ in first.values()} == {"legacy", "graph"}
        for percent, new in ((0, "legacy"), (100, "graph")):
            made.settings = settings(percent)
            for chat, (stack, _) in first.items():
                assert await turn(made, chat) == (stack, "pinned")
            assert await turn(made, f"new {percent}") == (new, "percent")


async def test_what_belongs_to_no_conversation_is_not_pinned() -> None:
    """A request without `chat_id` goes by its hash each time."""
    async with House(CASE) as made:
        for percent, stack in ((100, "graph"), (0, "legacy")):
            made.settings = settings(percent)
            assert await turn(made, None) == (stack, "percent")


async def test_a_flow_that_is_not_sticky_does_not_touch_the_store() -> None:
    """Nothing is asked, nothing is kept."""
    shelf = Shelf()
    async with House(CASE, Rules(pins=pins_on(shelf))) as made:
        made.settings = settings(100, sticky="none")
        assert await turn(made, "c") == ("graph", "percent")
        made.settings = settings(0, sticky="none")
        assert await turn(made, "c") == ("legacy", "percent")
    assert shelf.asked == 0


async def test_the_switch_sends_everybody_to_legacy_and_forgets_nobody() -> None:
    """Off at once, for those pinned to graph too; on again, they are where they were."""
    async with House(CASE) as made:
        made.settings = settings(100)
        assert await turn(made, "old") == ("graph", "percent")
        made.settings = settings(100, enable_langgraph=False)
        assert await turn(made, "old") == ("legacy", "disabled")
        assert await turn(made, "begun while off") == ("legacy", "disabled")
        made.settings = settings(0)
        assert await turn(made, "old") == ("graph", "pinned")
        assert await turn(made, "begun while off") == ("legacy", "percent")


async def test_force_lists_and_the_header_go_before_pins_and_pin_nobody() -> None:
    """A tester's wish holds for as long as it is there."""
    header = sign("graph", int(WALL) + 60, "c", QA_KEY)
    async with House(CASE) as made:
        made.settings = settings(0)
        assert await turn(made, "c", header) == ("graph", "forced_header")
        assert await turn(made, "c") == ("legacy", "percent")
        assert await turn(made, "c", header) == ("graph", "forced_header")
        made.settings = settings(0, force_graph=frozenset({"c", "d"}))
        assert await turn(made, "c") == ("graph", "force_list")
        assert await turn(made, "d") == ("graph", "force_list")
        made.settings = settings(0)
        assert await turn(made, "c") == ("legacy", "pinned")
        assert await turn(made, "d") == ("legacy", "percent")


async def test_routers_that_share_a_store_agree() -> None:
    """Also when one of them has not seen the new percentage yet: the first turn decides."""
    shelf = Shelf()
    rules = [Rules(pins=pins_on(shelf)) for _ in range(2)]
    async with House(CASE, rules[0]) as one, House(CASE, rules[1]) as two:
        one.settings, two.settings = settings(100), settings(0)
        assert await turn(one, "c") == ("graph", "percent")
        assert await turn(two, "c") == ("graph", "pinned")
        assert await turn(two, "d") == ("legacy", "percent")
        assert await turn(one, "d") == ("legacy", "pinned")


def pins_on(shelf: Shelf, **how: int) -> Pins:
    """Put pins on a shelf."""
    return Pins(shelf, now, lambda: WALL + now(), **how)


def fault(pins: Pins) -> str:
    """Return what `/readyz` says of them."""
    return pins.lookup.fault or ""


async def settled(pins: Pins, conversation: str = "c") -> HeldStack | None:
    """Hold the pin of one turn, which the hash sends to graph."""
    return await pins.hold("chat", conversation, "graph", "v", WEEK)


async def test_the_store_is_asked_seldom() -> None:
    """Once for a conversation, and again when it is due to be kept longer."""
    shelf = Shelf()
    pins = pins_on(shelf)
    assert await settled(pins) == BEGUN
    for _ in range(10):
        assert await settled(pins) == ON
    assert shelf.asked == 1
    await asyncio.sleep(FRESH_SECONDS + 1)
    assert await settled(pins) == ON
    assert shelf.asked == 2


async def test_what_is_remembered_has_a_bound() -> None:
    """The least recent conversation is asked for again."""
    shelf = Shelf()
    pins = pins_on(shelf, most=2)
    for conversation in ("a", "b", "a", "c", "a"):
        await settled(pins, conversation)
    assert shelf.asked == 3
    await settled(pins, "b")
    assert shelf.asked == 4


async def test_what_is_no_longer_fresh_is_forgotten() -> None:
    """It would be asked for again in any case: memory levels off long before the bound."""
    pins = pins_on(Shelf())
    for conversation in range(100):
        await settled(pins, str(conversation))
    assert pins.size == 100
    await asyncio.sleep(FRESH_SECONDS + 1)
    await settled(pins, "new")
    assert pins.size == 1


@pytest.mark.parametrize(
    ("broken", "told"),
    [(EffectFailed(Fault("store_unavailable")), "store_unavailable"), (OSError(), "OSError")],
)
async def test_a_store_out_of_reach_fails_nobody(broken: Exception, told: str) -> None:
    """The hash decides; it is told, asked again after a rest, and by one request only."""
    shelf = Shelf(broken=broken)
    pins = pins_on(shelf)
    for _ in range(5):
        assert await settled(pins) is None
    assert shelf.asked == 1
    assert fault(pins) == f"{told}; conversations are assigned by the hash alone"
    await asyncio.sleep(REST_SECONDS)
    assert await asyncio.gather(*(settled(pins) for _ in range(5))) == [None] * 5
    assert shelf.asked == 2
    shelf.broken = None
    await asyncio.sleep(REST_SECONDS)
    await settled(pins)
    assert fault(pins) == ""
    assert await settled(pins) == ON


async def test_a_slow_store_is_waited_for_a_moment_and_its_answer_is_kept() -> None:
    """The turn goes by the hash; the next one has the pin that came late."""
    shelf = Shelf(delay=0.3)
    await shelf.pins.hold("chat", "c", Pin("legacy", "v", 1), WEEK)
    pins = pins_on(shelf)
    before = now()
    assert await settled(pins) is None
    assert now() - before == pytest.approx(WAIT_SECONDS)
    assert fault(pins).startswith("no answer within 0.05 s; ")
    await asyncio.sleep(0.3)
    assert await settled(pins) == LEGACY
    assert shelf.asked == 1


async def test_released_conversations_are_assigned_anew_from_their_next_turn() -> None:
    """Those of the stack that is named, on the router that released them at once."""
    async with House(CASE) as made:
        made.settings = settings(50)
        first = {chat: await turn(made, chat) for chat in CHATS}
        legacy = [chat for chat, (stack, _) in first.items() if stack == "legacy"]
        made.settings = settings(100)
        pins = made.router.assigner.pins
        assert await pins.release("chat", "legacy") == PinCount(legacy=len(legacy))
        assert pins.counts["chat"] == PinCount(graph=len(CHATS) - len(legacy))
        for chat in CHATS:
            assert await turn(made, chat) == ("graph", "percent" if chat in legacy else "pinned")


async def test_other_routers_forget_what_was_released() -> None:
    """With their next synchronisation; one that cannot reach the store keeps what it remembers."""
    shelf = Shelf()
    one, two = pins_on(shelf), pins_on(shelf)
    await shelf.pins.hold("chat", "c", Pin("legacy", "v", 1), WEEK)
    for pins in (one, two):
        assert await settled(pins) == LEGACY
    await one.release("chat")
    assert await settled(one) == BEGUN
    assert await settled(two) == LEGACY
    shelf.broken = EffectFailed(Fault("store_unavailable"))
    await two.follow()
    assert await settled(two) == LEGACY
    shelf.broken = None
    await two.follow()
    await asyncio.sleep(1.0)
    assert await settled(two) == ON


async def test_a_pin_read_before_a_release_is_not_remembered_after_it() -> None:
    """A slow store's answer may be older than the release."""
    shelf = Shelf(late=0.3)
    await shelf.pins.hold("chat", "c", Pin("legacy", "v", 1), WEEK)
    pins = pins_on(shelf)
    assert await settled(pins) is None
    await pins.release("chat")
    await asyncio.sleep(0.3)
    assert pins.size == 0


async def test_a_store_is_probed_although_all_conversations_are_remembered() -> None:
    """Else a release by another router would wait for a request that asks the store."""
    shelf = Shelf(broken=EffectFailed(Fault("store_unavailable")))
    pins = pins_on(shelf)
    pins.move("chat", "c", "legacy", "v", WEEK)
    assert await settled(pins, "other") is None
    shelf.broken = None
    await shelf.pins.release("chat")
    assert await settled(pins) == LEGACY
    await asyncio.sleep(1.0)
    await pins.follow()
    assert fault(pins) == ""
    assert await settled(pins) == BEGUN


async def test_a_move_that_the_store_has_missed_is_written_once_it_answers() -> None:
    """The conversation stays where it moved to when its pin is read again."""
    shelf = Shelf()
    pins = pins_on(shelf)
    for chat in ("fails", "skipped"):
        await shelf.pins.hold("chat", chat, Pin("graph", "v", 1), WEEK)
    shelf.broken = EffectFailed(Fault("store_unavailable"))
    pins.move("chat", "fails", "legacy", "v", WEEK)
    await asyncio.sleep(0)
    assert await settled(pins) is None
    pins.move("chat", "skipped", "legacy", "v", WEEK)
    await asyncio.sleep(FRESH_SECONDS + 1.0)
    assert await settled(pins, "skipped") == LEGACY
    shelf.broken = None
    await pins.follow()
    for chat in ("fails", "skipped"):
        assert await settled(pins_on(shelf), chat) == LEGACY


async def test_a_move_that_was_not_written_before_a_release_never_is() -> None:
    """A released conversation is assigned anew, also where its move waits for the store."""
    shelf = Shelf(broken=EffectFailed(Fault("store_unavailable")))
    pins = pins_on(shelf)
    pins.move("chat", "c", "legacy", "v", WEEK)
    await asyncio.sleep(1.0)
    shelf.broken = None
    await shelf.pins.release("chat")
    await asyncio.sleep(1.0)
    await pins.follow()
    assert await settled(pins) == BEGUN


async def test_a_pin_read_before_a_move_does_not_replace_it() -> None:
    """A slow store's answer may be older than the fallback of its turn."""
    shelf = Shelf(late=0.3)
    await shelf.pins.hold("chat", "c", Pin("graph", "v", 1), WEEK)
    pins = pins_on(shelf)
    assert await settled(pins) is None
    pins.move("chat", "c", "legacy", "v", WEEK)
    await asyncio.sleep(0.3)
    assert await settled(pins) == LEGACY


async def test_closing_waits_for_no_answer() -> None:
    """A store that hangs does not hold up the end."""
    pins = pins_on(Shelf(delay=1e6))
    assert await settled(pins) is None
    await pins.aclose()
    await pins.aclose()
    assert now() < 1.0


async def test_the_bucket_on_record_is_the_hash_s() -> None:
    """A pinned run still tells where its key would have gone."""
    async with House(CASE) as made:
        made.settings = settings(100)
        await turn(made, "c")
        await turn(made, "c")
        assert [run.bucket for run in made.runs] == [bucket("a salt", "c")] * 2
