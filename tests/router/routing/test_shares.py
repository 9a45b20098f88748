"""Shares: what is configured, what graph really serves, and the stage that follows from both."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from contract.flows.chat import ChatRequest
from contract.qa_header import sign
from effects.stores import PinCount
from router.config.schema import BreakerSettings, Settings
from router.routing.shares import WINDOW_SECONDS, FlowShare
from tests.support.faulty_stacks import after, crash
from tests.support.router_world import QA_KEY, WALL, House, Rules
from tests.support.tool_replies import CASE, FLOWS

pytestmark = pytest.mark.virtual

CHATS = [f"chat {number}" for number in range(12)]


def settings(percent: int, **flow: object) -> Settings:
    """Return a sticky flow's settings."""
    shares = {"langgraph_percent": Decimal(percent), "route_key": "session_id"}
    return Rules(flow={**shares, "sticky": "conversation", **flow}).settings(CASE)


async def turns(house: House, chats: list[str] = CHATS) -> FlowShare:
    """Take a turn in each conversation; returns the shares after them."""
    for chat in chats:
        await house.ask(ChatRequest(message_id="m1", content="hi", chat_id=chat))
    return await counted(house)


async def counted(house: House) -> FlowShare:
    """Count the pins; returns the shares with them."""
    await house.router.assigner.pins.count()
    return house.router.shares.of("chat")


async def test_pinned_conversations_keep_a_flow_from_being_full() -> None:
    """Configured 100 %, effective 0 %, until the conversations are released."""
    async with House(CASE) as made:
        made.settings = settings(0, shadow_percent=Decimal(100))
        share = await turns(made)
        assert (share.stage, share.configured, share.effective) == ("shadow", 0.0, 0.0)
        made.settings = settings(100)
        share = await counted(made)
        assert (share.stage, share.effective, share.pins) == ("ramp", None, PinCount(legacy=12))
        share = await turns(made)
        assert (share.stage, share.configured, share.effective) == ("ramp", 100.0, 0.0)
        assert share.exchanges == {"legacy": 12, "graph": 0}
        await made.router.assigner.pins.release("chat")
        share = await turns(made)
        assert (share.stage, share.configured, share.effective) == ("full", 100.0, 100.0)
        assert (share.exchanges, share.pins) == ({"legacy": 0, "graph": 12}, PinCount(graph=12))


async def test_pinned_conversations_keep_a_flow_from_being_off() -> None:
    """Lowered to 0 %, graph still serves those that began there; the switch moves them all."""
    async with House(CASE) as made:
        made.settings = settings(100)
        await turns(made)
        made.settings = settings(0)
        share = await turns(made)
        assert (share.stage, share.configured, share.effective) == ("ramp", 0.0, 100.0)
        made.settings = settings(0, enable_langgraph=False)
        share = await turns(made)
        assert (share.stage, share.configured, share.effective) == ("off", 0.0, 0.0)


async def test_the_pins_of_a_flow_that_is_not_sticky_do_not_count() -> None:
    """They are in the store, and no request follows them."""
    async with House(CASE) as made:
        made.settings = settings(0)
        await turns(made)
        made.settings = settings(100, sticky="none")
        share = await counted(made)
        assert (share.stage, share.pins) == ("full", PinCount(legacy=12))


async def test_a_fallback_lowers_the_effective_share_and_no_stage() -> None:
    """The stage says where requests are sent, the share who served them."""
    async with House(CASE, graph=after(FLOWS["graph"], 0, crash)) as made:
        made.settings = settings(100, sticky="none")
        share = await turns(made, CHATS[:3])
        assert (share.stage, share.effective) == ("full", 0.0)


async def test_an_open_breaker_keeps_a_flow_from_being_full() -> None:
    """While it is open, requests are not sent to graph at all."""
    async with House(CASE, graph=after(FLOWS["graph"], 0, crash)) as made:
        breaker = BreakerSettings(least_requests=3)
        full = settings(100, sticky="none")
        made.settings = full.model_copy(update={"breaker": breaker})
        share = await turns(made)
        assert (share.stage, share.effective) == ("ramp", 0.0)


async def test_forced_legacy_keys_keep_a_flow_from_being_full() -> None:
    """With or without requests of theirs."""
    async with House(CASE) as made:
        made.settings = settings(100, force_legacy=frozenset({"vip"}))
        assert (await counted(made)).stage == "ramp"


async def test_requests_with_a_qa_header_do_not_count() -> None:
    """A tester changes no figure."""
    async with House(CASE) as made:
        made.settings = settings(0)
        header = sign("graph", int(WALL) + 60, "c", QA_KEY)
        await made.ask(ChatRequest(message_id="m1", content="hi", chat_id="c"), qa=header)
        share = await counted(made)
        assert (share.stage, share.effective) == ("off", None)


async def test_a_change_of_routing_begins_a_new_window() -> None:
    """Another setting does not; an exchange that began before the change is left out."""
    async with House(CASE) as made:
        made.settings = settings(0, sticky="none")
        await turns(made)
        made.settings = settings(0, sticky="none", shadow_percent=Decimal(50))
        assert made.router.shares.of("chat").exchanges["legacy"] == 12
        stream = await made.router.open(CASE.spec, CASE.body)
        await stream.open()
        made.settings = settings(100, sticky="none")
        assert made.router.shares.of("chat").effective is None
        made.router.close(stream)
        await made.contexts.settled_in(made.router, stream.context.exchange)
        assert made.router.shares.of("chat").exchanges == {"legacy": 0, "graph": 0}


async def test_the_window_slides() -> None:
    """It is stated, and what is older than it is left out."""
    async with House(CASE) as made:
        made.settings = settings(0, sticky="none")
        await turns(made)
        await asyncio.sleep(WINDOW_SECONDS + 1)
        share = await turns(made, CHATS[:2])
        assert (share.seconds, share.exchanges["legacy"]) == (WINDOW_SECONDS, 2)
